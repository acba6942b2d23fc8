"""Sends odd frames to the stack under test, and prints as JSON what must come of them.

odd_frames.py INTERFACE          frames of known fates
odd_frames.py INTERFACE SEED N   N random packets, with right checksums in about half of them
"""

import json
import logging
import random
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.all import (  # noqa: E402
    ARP, Dot1AD, Dot1Q, Ether, ICMP, ICMPv6DestUnreach, ICMPv6EchoRequest, ICMPv6PacketTooBig,
    ICMPv6ParamProblem, ICMPv6TimeExceeded, IP, IPOption_RR, IPOption_Timestamp, IPv6,
    IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, Jumbo, LLC, PadN,
    Raw, RouterAlert, TCP, UDP, conf, fragment, fuzz, raw,
)

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:07")
V4 = ETHER / IP(src="10.78.0.1", dst="10.78.0.7")
V6 = ETHER / IPv6(src="fd78::1", dst="fd78::7")
ASK = UDP(sport=40000, dport=7) / b"good"
PAD = PadN(optdata=b"\0\0\0\0")


def dropped():
    """Pairs of the reason for which a frame is dropped and the frame."""
    tcp = dict(sport=40000, dport=80, seq=1, ack=1)
    for network in (V4, V6):
        # Nothing listens. Flags that no honest segment has, and options that no parser should trust.
        for flags in ("", "S", "A", "F", "FPU", "SF", "SAFPU", "SEC", "PUEC"):
            yield "port_unreachable", network / TCP(flags=flags, **tcp)
        for options in (
            [(2, b"\x05")], [(3, b"\x0e\x0e")], [(5, b"\0" * 7)], [(8, b"\0" * 3)], [(254, b"")],
            [(19, b"\0" * 16)], [(34, b"cookies!")], [("NOP", None)] * 40,
        ):
            yield "port_unreachable", network / TCP(flags="S", options=options, **tcp)
        # A length of 0, and a length beyond the header.
        for options in (b"\x02\x00\x00\x00", b"\x02\x3c\x05\xb4"):
            segment = TCP(flags="S", dataofs=6, **tcp) / options
            yield "port_unreachable", network / segment
        yield "tcp_header", network / TCP(flags="S", dataofs=4, **tcp)
        yield "tcp_header", network / TCP(flags="S", dataofs=15, **tcp)
        yield "tcp_checksum", network / TCP(flags="S", chksum=0x1234, **tcp)
        # A reset is never answered, and there is nothing that it could end.
        yield "port_unreachable", network / TCP(flags="R", **tcp)
        yield "port_unreachable", network / TCP(flags="RA", **tcp) / b"why"
    yield from dropped_v4()
    yield from dropped_v6()
    yield from dropped_tags()


def dropped_v4():
    """What only IPv4 has."""
    for kind in (3, 4, 5, 11, 12):
        # Source quenches and redirects are ignored, whatever they quote.
        wrong = "icmp" if kind in (3, 11, 12) else "icmp_ignored"
        for quoted in (b"", b"\xff" * 40):
            yield wrong, V4 / ICMP(type=kind, code=1) / quoted
        # A packet of another host, and one of ours that is cut off.
        other = raw(IP(src="10.78.0.1", dst="10.78.0.9") / ASK)
        for quoted in (other, raw(IP(src="10.78.0.7", dst="10.78.0.1") / ASK)[:22]):
            yield "icmp_ignored", V4 / ICMP(type=kind, code=1) / quoted
    yield "icmp", V4 / ICMP(type=3, code=3, chksum=1) / (b"\0" * 28)
    yield "udp_header", V4 / UDP(sport=40000, dport=7, len=4) / b"short"
    yield "udp_header", V4 / UDP(sport=40000, dport=7, len=2000) / b"long"


def dropped_v6():
    """Chains of extension headers, and errors about what was never sent."""
    hop, destination = IPv6ExtHdrHopByHop(options=[PAD]), IPv6ExtHdrDestOpt(options=[PAD])
    yield "ip_header", V6 / hop / hop / ASK
    yield "ip_header", V6 / destination / hop / ASK
    yield "ip_option", V6 / IPv6ExtHdrRouting(addresses=["fd78::9"], segleft=1) / ASK
    yield "ip_option", V6 / IPv6ExtHdrRouting(type=4, addresses=["fd78::9"], segleft=1) / ASK
    yield "ip_option", V6 / IPv6ExtHdrHopByHop(options=[Jumbo(jumboplen=70000)]) / ASK
    # A first fragment must hold all headers (RFC 7112).
    cut = raw(IPv6ExtHdrDestOpt(options=[PAD], nh=17))
    yield "fragment_invalid", V6 / IPv6ExtHdrFragment(id=1, m=1, nh=60) / cut
    yield "protocol", V6 / IPv6ExtHdrDestOpt(options=[PAD], nh=200) / (b"\0" * 20)
    errors = (
        ICMPv6DestUnreach(code=4), ICMPv6PacketTooBig(mtu=1280), ICMPv6TimeExceeded(),
        ICMPv6ParamProblem(ptr=6),
    )
    other = raw(IPv6(src="fd78::1", dst="fd78::9") / ASK)
    for error in errors:
        yield "icmp", V6 / error
        yield "icmp", V6 / error / (b"\xff" * 60)
        yield "icmp_ignored", V6 / error / other
    # No link is as narrow.
    yield "icmp_ignored", V6 / ICMPv6PacketTooBig(mtu=0) / other


def dropped_tags():
    """Tags, one and several, around packets that would be answered without."""
    packet = IP(src="10.78.0.1", dst="10.78.0.7") / ASK
    for tags in (
        Dot1Q(vlan=5), Dot1Q(vlan=5, prio=7, id=1), Dot1AD(vlan=6), Dot1AD(vlan=6) / Dot1Q(vlan=5),
        Dot1Q(vlan=5) / Dot1Q(vlan=5) / Dot1Q(vlan=5),
    ):
        yield "ether_type", ETHER / tags / packet
    yield "ether_type", ETHER / Dot1Q(vlan=5) / ARP(pdst="10.78.0.7", psrc="10.78.0.1")
    yield "ether_type", ETHER / LLC(dsap=0x42, ssap=0x42) / (b"\0" * 43)


def returned():
    """Unusual frames that are right; each holds or completes a datagram to the echo service."""
    ends = dict(src="10.78.0.1", dst="10.78.0.7")
    yield ETHER / IP(options=IPOption_RR(routers=["0.0.0.0"] * 3), **ends) / ASK
    yield ETHER / IP(options=IPOption_Timestamp(), **ends) / ASK
    yield ETHER / IP(tos=0xff, ttl=1, id=0, **ends) / ASK
    yield V4 / UDP(sport=40000, dport=7, chksum=0) / b"without a checksum"
    # Behind the packet, as links pad short frames.
    yield Raw(raw(V4 / ASK) + b"\xff" * 18)
    hop, destination = IPv6ExtHdrHopByHop(options=[PAD]), IPv6ExtHdrDestOpt(options=[PAD])
    past = IPv6ExtHdrRouting(addresses=["fd78::9"], segleft=0)
    yield V6 / hop / destination / past / IPv6ExtHdrFragment(id=7) / destination / ASK
    yield V6 / IPv6ExtHdrHopByHop(options=[RouterAlert(), PAD]) / ASK


def pieces():
    """Datagrams in pieces: lists of frames, each of which makes one datagram."""
    whole = IP(src="10.78.0.1", dst="10.78.0.7", id=21) / UDP(sport=40000, dport=7) / (b"f" * 100)
    yield [ETHER / piece for piece in fragment(whole, fragsize=8)]
    whole = IP(src="10.78.0.1", dst="10.78.0.7", id=22) / UDP(sport=40000, dport=7) / (b"f" * 100)
    yield [ETHER / piece for piece in reversed(fragment(whole, fragsize=24))]


def random_packets(count):
    """Random packets; what scapy does not draw it computes, such as checksums."""
    layers = (
        lambda: V4 / fuzz(UDP()) / noise(), lambda: V4 / fuzz(TCP()) / noise(),
        lambda: V4 / fuzz(ICMP()) / noise(), lambda: V4 / UDP(sport=40000, dport=9) / noise(),
        lambda: ETHER / fuzz(IP(src="10.78.0.1", dst="10.78.0.7", version=4)) / noise(),
        lambda: ETHER / fuzz(IP(src="10.78.0.1", dst="10.78.0.7", flags=0, frag=0)) / fuzz(UDP()),
        lambda: V6 / fuzz(UDP()) / noise(), lambda: V6 / fuzz(TCP()) / noise(),
        lambda: V6 / fuzz(ICMPv6EchoRequest()) / noise(),
        lambda: V6 / fuzz(IPv6ExtHdrDestOpt()) / fuzz(UDP()),
        lambda: V6 / fuzz(IPv6ExtHdrRouting()) / noise(),
        lambda: V6 / fuzz(IPv6ExtHdrFragment()) / fuzz(UDP()) / noise(),
        lambda: ETHER / fuzz(IPv6(src="fd78::1", dst="fd78::7", version=6)) / noise(),
        lambda: ETHER / fuzz(ARP(hwsrc="02:00:00:00:00:01", psrc="10.78.0.1")),
        lambda: ETHER / fuzz(Dot1Q()) / noise(),
    )
    for _ in range(count):
        frame = bytearray(raw(random.choice(layers)()))
        # In some frames a few bits are wrong, behind the link addresses.
        while random.random() < 0.3:
            frame[random.randrange(12, len(frame))] ^= 1 << random.randrange(8)
        yield bytes(frame[:MOST_BYTES])


def noise():
    """Some bytes, mostly few."""
    return Raw(random.randbytes(int(random.expovariate(1 / 60))))


def known(send):
    """Sends the frames of known fates, and returns the drops by reason and the number of echoes."""
    drops, echoes = {}, 0
    for reason, frame in dropped():
        send(raw(frame))
        drops[reason] = drops.get(reason, 0) + 1
    for frame in returned():
        send(raw(frame))
        echoes += 1
    for frames in pieces():
        for frame in frames:
            send(raw(frame))
        echoes += 1
    return {"drops": drops, "echoes": echoes}


def main():
    """See the module."""
    socket = conf.L2socket(iface=sys.argv[1])
    if len(sys.argv) == 2:
        print(json.dumps(known(socket.send)))
        return
    random.seed(int(sys.argv[2]))
    for frame in random_packets(int(sys.argv[3])):
        socket.send(frame)


MOST_BYTES = 1514

main()
