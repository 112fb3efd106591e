package postgres

type counts struct{}
