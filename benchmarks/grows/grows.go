// A program in Go that becomes bigger in one line, when it gets a line of input.
package main

import (
	"bufio"
	"fmt"
	"os"
)

var kept [][]byte

//go:noinline
func comeAndGo() int {
	sum := 0
	for n := 0; n < 100; n++ {
		sum += len(make([]byte, 3000+n))
	}
	return sum
}

//go:noinline
func fill() {
	for n := 0; n < 100000; n++ {
		block := make([]byte, 1000)
		for at := range block {
			block[at] = byte(n) /* planted: go */
		}
		kept = append(kept, block)
	}
}

func main() {
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	input.ReadString('\n')
	passing := comeAndGo()
	fill()
	fmt.Println("grew", len(kept)+passing)
	input.ReadString('\n')
	fmt.Println(len(kept))
}
