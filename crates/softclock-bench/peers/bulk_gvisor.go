// gVisor's netstack on a TAP device, for bulk transfers: at one port it sends and closes, at another it reads to the end
// and closes.
//
// Arguments: device, link address, address, port to send at, port to receive at, bytes to send, size of buffers (0: the
// defaults). Prints a line when it listens.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const nic = 1

// Ends the program with an error of Go or of gVisor.
func fail(what string, err any) {
	fmt.Fprintln(os.Stderr, what+":", err)
	os.Exit(1)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fail(text, err)
	}
	return n
}

// The settings of runsc: selective acknowledgments, and receive buffers that grow unless their size is given.
func settings(s *stack.Stack, buffers int) {
	sack := tcpip.TCPSACKEnabled(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	moderate := tcpip.TCPModerateReceiveBufferOption(buffers == 0)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate)
	if buffers > 0 {
		receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: buffers, Max: buffers}
		s.SetTransportProtocolOption(tcp.ProtocolNumber, &receive)
		send := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: buffers, Max: buffers}
		s.SetTransportProtocolOption(tcp.ProtocolNumber, &send)
	}
}

func open(device, mac, address string, buffers int) (*stack.Stack, tcpip.Address) {
	fd, err := tun.OpenTAP(device)
	if err != nil {
		fail(device, err)
	}
	link, err := net.ParseMAC(mac)
	if err != nil {
		fail(mac, err)
	}
	endpoint, err := fdbased.New(&fdbased.Options{
		FDs:            []int{fd},
		MTU:            1500,
		EthernetHeader: true,
		Address:        tcpip.LinkAddress(link),
	})
	if err != nil {
		fail(device, err)
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	settings(s, buffers)
	if err := s.CreateNIC(nic, endpoint); err != nil {
		fail("NIC", err)
	}
	own := tcpip.AddrFrom4([4]byte(net.ParseIP(address).To4()))
	protocolAddress := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: own, PrefixLen: 24},
	}
	if err := s.AddProtocolAddress(nic, protocolAddress, stack.AddressProperties{}); err != nil {
		fail(address, err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: protocolAddress.AddressWithPrefix.Subnet(), NIC: nic}})
	return s, own
}

func serve(listener *gonet.TCPListener, one func(net.Conn)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			fail("accept", err)
		}
		one(connection)
		connection.Close()
	}
}

func main() {
	bytes, buffers := number(os.Args[6]), number(os.Args[7])
	s, own := open(os.Args[1], os.Args[2], os.Args[3], buffers)
	listen := func(port int) *gonet.TCPListener {
		local := tcpip.FullAddress{NIC: nic, Addr: own, Port: uint16(port)}
		listener, err := gonet.ListenTCP(s, local, ipv4.ProtocolNumber)
		if err != nil {
			fail("listen", err)
		}
		return listener
	}
	send, receive := listen(number(os.Args[4])), listen(number(os.Args[5]))
	fmt.Println("listens")
	block := make([]byte, 64<<10)
	go serve(receive, func(connection net.Conn) { io.Copy(io.Discard, connection) })
	serve(send, func(connection net.Conn) {
		for left := bytes; left > 0; {
			written, err := connection.Write(block[:min(left, len(block))])
			if err != nil {
				return
			}
			left -= written
		}
	})
}
