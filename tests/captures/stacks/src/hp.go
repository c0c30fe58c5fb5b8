package main

import (
	"os"
	"runtime"
	"runtime/pprof"
)

var kept [][]byte

func keep(n int) { kept = append(kept, make([]byte, n)) }
func deep(d, n int) { if d == 0 { keep(n); return }; deep(d-1, n) }
func write(name string, debug int) {
	f, _ := os.Create(name)
	runtime.GC()
	pprof.Lookup("heap").WriteTo(f, debug)
	f.Close()
}
func main() {
	runtime.MemProfileRate = 4096
	for i := 0; i < 1000; i++ { keep(1000 + i) }
	write("go1.pb.gz", 0)
	write("go1.txt", 1)
	for i := 0; i < 500; i++ { deep(40, 3000) }
	write("go2.pb.gz", 0)
	write("go2.txt", 1)
}
