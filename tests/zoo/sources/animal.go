// An animal in Go: it reports as those in C do (report.h).
package main

import (
	"encoding/binary"
	"os"
	"time"
)

func main() {
	report, err := os.OpenFile(os.Getenv("ZOO_REPORT"), os.O_RDWR, 0)
	if err != nil {
		os.Exit(2)
	}
	word := make([]byte, 8)
	write := func(number int64, value uint64) {
		binary.LittleEndian.PutUint64(word, value)
		report.WriteAt(word, number*8)
	}
	kept := make([][]byte, 5000)
	for i := range kept {
		kept[i] = make([]byte, 200)
	}
	write(1, uint64(os.Getpid()))
	write(0, 1)
	for ticks := uint64(1); ; ticks++ {
		kept[ticks%5000][0] = 1
		write(2, ticks)
		if report.ReadAt(word, 80); binary.LittleEndian.Uint64(word) == 1 {
			os.Exit(7)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
