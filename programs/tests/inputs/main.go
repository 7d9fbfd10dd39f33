// Blocks from malloc in many goroutines, over as many system threads as they need.
package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t work(size_t size, int seed) {
	unsigned char *block = malloc(size);
	memset(block, seed, size);
	block = realloc(block, size * 3);
	uint64_t sum = 0;
	for (size_t i = 0; i < size; i++) sum += block[i];
	free(block);
	return sum;
}
*/
import "C"
import "sync"

func main() {
	var group sync.WaitGroup
	sums := make([]uint64, 64)
	for n := range sums {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			for size := 1; size < 2000; size++ {
				sums[n] += uint64(C.work(C.size_t(size), C.int(n)))
			}
		}(n)
	}
	group.Wait()
	for n, sum := range sums {
		println(n, sum)
	}
}
