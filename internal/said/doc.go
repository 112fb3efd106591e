// Package said keeps short what whoever reaches a port can cause to be logged, from as many addresses as he likes: of each [Kind] a few lines a minute, about an address each, and a count of the rest.
package said
