// Package classes holds the benchmark of the write-up: five strings are sorted, and their slice's header escapes to the heap.
package classes

import (
	"sort"
	"testing"
)

func five() []string {
	return []string{"heart", "lungs", "brain", "kidneys", "pancreas"}
}

// As it stands in the write-up. Go 1.22 and later sort without an interface: nothing escapes.
func BenchmarkSortStrings(b *testing.B) {
	s := five()
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		sort.Strings(s)
	}
}

// What sort.Strings was when the write-up was written: the header, 24 bytes, becomes an interface's value.
func BenchmarkSortInterface24(b *testing.B) {
	s := five()
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		sort.Sort(sort.StringSlice(s))
	}
}

// A header that has the 32 bytes to which Go 1.15 rounded it.
type rounded struct {
	sort.StringSlice
	_ uintptr
}

// What Go 1.15 allocated, by the Go that is here.
func BenchmarkSortInterface32(b *testing.B) {
	s := five()
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		sort.Sort(rounded{StringSlice: s})
	}
}
