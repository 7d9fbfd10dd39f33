// Package classes holds the write-up's benchmark: it sorts five strings, and the header of their
// slice escapes to the heap.
package classes

import (
	"sort"
	"testing"
)

func five() []string {
	return []string{"heart", "lungs", "brain", "kidneys", "pancreas"}
}

// The same as in the write-up. Go 1.22 and later sort without an interface: nothing escapes.
func BenchmarkSortStrings(b *testing.B) {
	s := five()
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		sort.Strings(s)
	}
}

// sort.Strings at the time of the write-up: the header of 24 bytes becomes an interface's value.
func BenchmarkSortInterface24(b *testing.B) {
	s := five()
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		sort.Sort(sort.StringSlice(s))
	}
}

// A header of the 32 bytes to which Go 1.15 rounded it.
type rounded struct {
	sort.StringSlice
	_ uintptr
}

// What Go 1.15 allocated, with the installed Go.
func BenchmarkSortInterface32(b *testing.B) {
	s := five()
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		sort.Sort(rounded{StringSlice: s})
	}
}
