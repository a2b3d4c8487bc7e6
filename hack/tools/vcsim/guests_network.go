package main

import (
	"net"
	"net/netip"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// network is what the guest reports of its network cards, and its first address.
func (g *guests) network(
	vm *simulator.VirtualMachine, settings GuestSettings, seed cloudInitSeed,
) ([]types.GuestNicInfo, string) {
	g.mu.Lock()
	machine := g.known(vm.Self)
	for _, nic := range vm.Guest.Net { // what guest customization has left there
		if len(nic.IpAddress) > 0 && !machine.given[nic.IpAddress[0]] {
			machine.static[nic.DeviceConfigId] = nic.IpAddress
		}
	}
	number, static := machine.number, machine.static
	g.mu.Unlock()

	var nics []types.GuestNicInfo
	var first4, first6 string
	for i, card := range ethernetCards(vm) {
		connected := card.Connectable == nil || card.Connectable.Connected
		nic := types.GuestNicInfo{
			Network:        g.in.networkName(card.Backing),
			MacAddress:     card.MacAddress,
			Connected:      connected,
			DeviceConfigId: card.Key,
			IpConfig:       &types.NetIpConfigInfo{},
		}
		add := func(address netip.Prefix, origin string) {
			nic.IpAddress = append(nic.IpAddress, address.Addr().String())
			nic.IpConfig.IpAddress = append(nic.IpConfig.IpAddress, types.NetIpConfigInfoIpAddress{
				IpAddress:    address.Addr().String(),
				PrefixLength: int32(address.Bits()),
				Origin:       origin,
				State:        "preferred",
			})
			switch {
			case address.Addr().Is4() && first4 == "":
				first4 = address.Addr().String()
			case address.Addr().Is6() && !address.Addr().IsLinkLocalUnicast() && first6 == "":
				first6 = address.Addr().String()
			}
		}
		if connected {
			for _, found := range addresses(settings, seed.card(card.MacAddress), static[card.Key], number, i) {
				add(found.prefix, found.origin)
			}
			if link, ok := linkLocal(card.MacAddress); ok && len(nic.IpAddress) > 0 {
				add(link, "linklayer")
			}
		}
		nics = append(nics, nic)
	}
	g.mu.Lock()
	for _, nic := range nics {
		for _, ip := range nic.IpAddress {
			machine.given[ip] = true
		}
	}
	g.mu.Unlock()
	if first4 != "" {
		return nics, first4
	}
	return nics, first6
}

type address struct {
	prefix netip.Prefix
	origin string
}

// addresses of the card: those configured by hand if there are any, else those of the network.
func addresses(
	settings GuestSettings, seed *cloudInitCard, customized []string, number, card int,
) []address {
	var found []address
	for _, text := range customized {
		if ip, err := netip.ParseAddr(text); err == nil && !ip.IsLinkLocalUnicast() {
			found = append(found, address{netip.PrefixFrom(ip, min(24, ip.BitLen())), "manual"})
		}
	}
	dhcp4, auto6 := settings.IPv4, settings.IPv6
	if seed != nil {
		for _, text := range seed.Addresses {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				found = append(found, address{prefix, "manual"})
			}
		}
		dhcp4 = dhcp4 && seed.DHCP4
		auto6 = auto6 && (seed.DHCP6 || seed.AcceptRA == nil || *seed.AcceptRA)
	} else if len(found) > 0 {
		return found
	}
	// 16 cards a machine: addresses never meet.
	index := number*16 + card
	if dhcp4 {
		found = append(found, address{inRange(settings.IPv4Range, index), "dhcp"})
	}
	if auto6 {
		found = append(found, address{inRange(settings.IPv6Range, index), "linklayer"})
	}
	return found
}

// inRange is the address with that number in a prefix, wrapping around at its end.
func inRange(cidr string, number int) netip.Prefix {
	prefix := netip.MustParsePrefix(cidr).Masked()
	raw := prefix.Addr().AsSlice()
	host := uint64(number)
	if bits := prefix.Addr().BitLen() - prefix.Bits(); bits < 63 {
		host %= 1 << bits
	}
	for i := len(raw) - 1; i >= 0 && host > 0; i-- {
		sum := uint64(raw[i]) + host&0xff
		raw[i] = byte(sum)
		host = host>>8 + sum>>8
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(ip, prefix.Bits())
}

// linkLocal is the IPv6 address that an interface gives itself (RFC 4291, appendix A).
func linkLocal(mac string) (netip.Prefix, bool) {
	hw, err := net.ParseMAC(mac)
	if err != nil || len(hw) != 6 {
		return netip.Prefix{}, false
	}
	ip := netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: hw[0] ^ 2, 9: hw[1], 10: hw[2], 11: 0xff, 12: 0xfe, 13: hw[3], 14: hw[4], 15: hw[5],
	})
	return netip.PrefixFrom(ip, 64), true
}

func ethernetCards(vm *simulator.VirtualMachine) []*types.VirtualEthernetCard {
	var cards []*types.VirtualEthernetCard
	for _, device := range vm.Config.Hardware.Device {
		if card, ok := device.(types.BaseVirtualEthernetCard); ok {
			cards = append(cards, card.GetVirtualEthernetCard())
		}
	}
	return cards
}
