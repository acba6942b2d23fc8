// A sender of quic-go: sends to the first stream of each connection, without end.
//
// Arguments: address, certificate, key. Prints a line when it listens, and one with its numbers of packets sent and lost
// when a connection has ended.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"

	"github.com/quic-go/quic-go"
)

// Above the bandwidth-delay product of 200 Mbit/s and 400 ms.
const window = 64 << 20

// The bytes of UDP in each full packet.
const packet = 1452

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Answers the first stream until the client has left.
func send(connection *quic.Conn) {
	stream, err := connection.AcceptStream(context.Background())
	if err != nil {
		return
	}
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = stream.Write(block)
	}
	stats := connection.ConnectionStats()
	fmt.Println(stats.PacketsLost)
}

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
	check(err)
	listener, err := quic.ListenAddr(os.Args[1], &tls.Config{
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{"bulk"},
	}, &quic.Config{
		InitialPacketSize:              packet,
		DisablePathMTUDiscovery:        true,
		InitialStreamReceiveWindow:     window,
		MaxStreamReceiveWindow:         window,
		InitialConnectionReceiveWindow: window,
		MaxConnectionReceiveWindow:     window,
	})
	check(err)
	fmt.Println("listens")
	for {
		connection, err := listener.Accept(context.Background())
		check(err)
		go send(connection)
	}
}
