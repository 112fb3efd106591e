package keyholdtest

import (
	"database/sql"
	"fmt"
	"reflect"
)

// ThenRows asserts which rows a query gives, all of them and in its order. A row has a value per column; numbers of all kinds are
// compared as numbers, bytes as text, and true as 1. The application must run on a store with SQL, see [On].
func (k *Kit) ThenRows(query string, rows ...[]any) {
	k.T.Helper()
	k.start()
	got, err := k.query(query)
	if err != nil {
		k.T.Fatalf("rows of %s: %v", query, err)
	}
	want := make([][]any, len(rows))
	for i, row := range rows {
		want[i] = cells(row)
	}
	if d := diff(want, got); d != "" {
		k.errorf("rows of %s (-want +got):\n%s", query, d)
	}
}

// query reads what is committed: nothing else is going on.
func (k *Kit) query(query string) (_ [][]any, err error) {
	ctx, cancel := k.context()
	defer cancel()
	tx := k.store.Store.Begin("ThenRows")
	defer func() {
		if end := tx.Rollback(); err == nil {
			err = end
		}
	}()
	db, err := tx.SQL(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: run the test on a store with SQL, keyholdtest.On(store)", err)
	}
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scan(rows)
}

func scan(rows *sql.Rows) (all [][]any, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all = append(all, cells(row))
	}
	return all, rows.Err()
}

// cells gives values in the form in which they are compared.
func cells(row []any) []any {
	out := make([]any, len(row))
	for i, v := range row {
		out[i] = cell(v)
	}
	return out
}

func cell(v any) any {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Bool:
		if r.Bool() {
			return int64(1)
		}
		return int64(0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return int64(r.Uint())
	case reflect.Float32, reflect.Float64:
		if f := r.Float(); f != float64(int64(f)) {
			return f
		}
		return int64(r.Float())
	case reflect.String:
		return r.String()
	}
	return v
}
