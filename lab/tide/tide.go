// The write-up's program, step by step: each line of standard input names an action, and a line of
// standard output reports its result. The 100 MiB are one slice, as in the write-up. Dropped memory
// is left to the collector; only `freed` runs it after "close".
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type program struct {
	bytes, count int
	freed        bool
	gate         chan struct{}
	ended        sync.WaitGroup
	parked       int
	bytesEach    uint64
	fullKiB      uint64
}

func residentKiB() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	check(err)
	pages, err := strconv.ParseUint(strings.Fields(string(text))[1], 10, 64)
	check(err)
	return pages * uint64(os.Getpagesize()) / 1024
}

func faults() int64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Minflt
}

func (p *program) allocate() {
	block := make([]byte, p.bytes)
	for at := 0; at < len(block); at += os.Getpagesize() {
		block[at] = 1
	}
	p.fullKiB = residentKiB()
	runtime.KeepAlive(block)
}

// Bytes that the runtime allocated in total, freed or not, and its stacks.
func given() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc + stats.StackInuse
}

func (p *program) create() {
	before := given()
	p.gate = make(chan struct{})
	var ready sync.WaitGroup
	// Debian's Go is 1.19, where a number has no range.
	for i := 0; i < p.count; i++ {
		ready.Add(1)
		p.ended.Add(1)
		go func() {
			ready.Done()
			<-p.gate
			p.ended.Done()
		}()
	}
	ready.Wait()
	p.parked = p.count
	// The second crowd reuses the memory of the first, so the need of each is measured with the first.
	if p.bytesEach == 0 {
		p.bytesEach = (given() - before) / uint64(p.count)
	}
}

func (p *program) close() {
	close(p.gate)
	p.ended.Wait()
	p.parked = 0
	if p.freed {
		runtime.GC()
		debug.FreeOSMemory()
	}
}

func (p *program) act(action string) {
	p.fullKiB = 0
	switch action {
	case "allocate":
		p.allocate()
	case "create":
		p.create()
	case "close":
		p.close()
	default:
		panic("no action " + action)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

// BYTES COROUTINES plain|freed
func main() {
	p := &program{bytes: number(os.Args[1]), count: number(os.Args[2]), freed: os.Args[3] == "freed"}
	fmt.Printf("heap=%s\n", runtime.Version())
	actions := bufio.NewScanner(os.Stdin)
	for actions.Scan() {
		before, start := faults(), time.Now()
		p.act(actions.Text())
		live := uint64(p.parked) * p.bytesEach / 1024
		fmt.Printf(`{"faults":%d,"ns":%d,"full_kib":%d,"live_kib":%d,"coroutines":%d,"note":""}`+"\n",
			faults()-before, time.Since(start).Nanoseconds(), p.fullKiB, live, p.parked)
	}
}
