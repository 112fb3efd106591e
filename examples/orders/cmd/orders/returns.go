//go:build next

package main

import "github.com/keyhold/keyhold/examples/orders"

func init() { about["return"] = func() any { return new(orders.ReturnOrder) } }
