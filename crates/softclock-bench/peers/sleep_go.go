// Sleeps of goroutines on one processor: see src/lab/sleepers/.
package main

import (
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	processCPU = 2
	threadCPU  = 3

	burstNs = 50_000
	// Sixteen buckets per octave.
	subBits = 4
	sub     = 1 << subBits
	buckets = (64-subBits)*sub + sub
)

type counts struct {
	sync.Mutex
	early, bursts, burstNs uint64
	late                   [buckets]uint64
}

var tally counts

func clockNs(clock uintptr) uint64 {
	var time syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&time)), 0)
	return uint64(time.Nano())
}

// xorshift64*
func next(state *uint64) uint64 {
	*state ^= *state >> 12
	*state ^= *state << 25
	*state ^= *state >> 27
	return *state * 0x2545f4914f6cdd1d
}

func sleepForever(random, shortestNs, spanNs uint64) {
	for {
		above, _ := bits.Mul64(next(&random), spanNs)
		length := time.Duration(shortestNs + above)
		due := time.Now().Add(length)
		time.Sleep(length)
		count(time.Since(due))
	}
}

func count(late time.Duration) {
	ns := uint64(0)
	if late > 0 {
		ns = uint64(late)
	}
	octave := 63 - bits.LeadingZeros64(ns|sub) - subBits
	tally.Lock()
	defer tally.Unlock()
	if late < 0 {
		tally.early++
	}
	tally.late[octave*sub+int(ns>>octave)]++
}

// Takes one byte per turn, as all sleepers do.
func work() {
	var buffer [1]byte
	for {
		if n, err := os.Stdin.Read(buffer[:]); n == 0 || err != nil {
			return
		}
		used := burst()
		tally.Lock()
		tally.bursts++
		tally.burstNs += used
		tally.Unlock()
		runtime.Gosched()
	}
}

var number uint64

// Computes until it has used 50 us of CPU time.
func burst() uint64 {
	start := clockNs(threadCPU)
	for {
		for i := 0; i < 500; i++ {
			number = number*3 + 1
		}
		if used := clockNs(threadCPU) - start; used >= burstNs {
			return used
		}
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	var arguments [5]uint64
	for i := range arguments {
		arguments[i], _ = strconv.ParseUint(os.Args[i+1], 10, 64)
	}
	timers, shortestNs, longestNs := arguments[0], arguments[1]*1000, arguments[2]*1000
	go work()
	for timer := uint64(0); timer < timers; timer++ {
		go sleepForever(timer+1, shortestNs, longestNs-shortestNs+1)
	}
	time.Sleep(time.Duration(arguments[3]) * time.Millisecond)
	tally.Lock()
	tally.early, tally.bursts, tally.burstNs, tally.late = 0, 0, 0, [buckets]uint64{}
	tally.Unlock()
	start, cpu := time.Now(), clockNs(processCPU)
	time.Sleep(time.Duration(arguments[4]) * time.Millisecond)
	tally.Lock()
	fmt.Println("cpu_ns", clockNs(processCPU)-cpu)
	fmt.Println("elapsed_ns", time.Since(start).Nanoseconds())
	fmt.Println("early", tally.early)
	fmt.Println("bursts", tally.bursts)
	fmt.Println("burst_ns", tally.burstNs)
	for bucket, count := range tally.late {
		octave := 0
		if bucket >= 2*sub {
			octave = bucket/sub - 1
		}
		if count > 0 {
			fmt.Println("late", ((bucket-octave*sub+1)<<octave)-1, count)
		}
	}
}
