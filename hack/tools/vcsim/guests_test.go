package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"net/netip"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

func (l *lab) booted(name string, extra ...types.BaseOptionValue) moRef {
	l.Helper()
	spec := l.cloneSpec()
	spec.PowerOn = true
	spec.Config.ExtraConfig = extra
	ref, fault := l.clone("ubuntu", name, spec)
	if fault != nil {
		l.Fatalf("%#v", fault)
	}
	return ref
}

func (l *lab) guest(ref moRef) Machine { return l.in.describe(l.vm(ref)) }

func TestGuestFollowsThePower(t *testing.T) {
	l := newLab(t)
	ref := l.booted("web")
	l.eventually("tools", func() bool { return l.guest(ref).ToolsRunning })
	address := l.guest(ref).GuestAddress
	if ip, err := netip.ParseAddr(address); err != nil || !netip.MustParsePrefix("10.32.0.0/12").Contains(ip) {
		t.Errorf("address %q", address)
	}
	vm := object.NewVirtualMachine(l.client, ref)
	task, err := vm.PowerOff(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	l.eventually("a guest that is gone", func() bool {
		g := l.guest(ref)
		return !g.ToolsRunning && g.GuestAddress == "" && g.GuestHostName == "" && len(g.Cards[0].Addresses) == 0
	})
	task, err = vm.PowerOn(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	l.eventually("the same address", func() bool { return l.guest(ref).GuestAddress == address })
}

func TestGuestThatIsOff(t *testing.T) {
	l := newLab(t)
	_, err := l.in.guests.change("silent", []byte(`{"enabled":false}`))
	l.must(err)
	silent, loud := l.booted("silent"), l.booted("loud")
	l.eventually("the other's tools", func() bool { return l.guest(loud).ToolsRunning })
	if g := l.guest(silent); g.ToolsRunning || g.GuestAddress != "" {
		t.Errorf("%+v", g)
	}
	err = object.NewVirtualMachine(l.client, silent).ShutdownGuest(l.ctx)
	wants[*types.ToolsUnavailable](l, faultOf(err))
	_, err = l.in.guests.change("silent", []byte(`{"enabled":true}`))
	l.must(err)
	l.eventually("its tools", func() bool { return l.guest(silent).ToolsRunning })
	l.must(object.NewVirtualMachine(l.client, silent).ShutdownGuest(l.ctx))
	l.eventually("power off", func() bool { return l.guest(silent).PowerState == "poweredOff" })
}

func TestGuestThatRestarts(t *testing.T) {
	l := newLab(t)
	ref := l.booted("web")
	l.eventually("its tools", func() bool { return l.guest(ref).ToolsRunning })
	l.must(object.NewVirtualMachine(l.client, ref).RebootGuest(l.ctx))
	l.eventually("its tools stop", func() bool { return !l.guest(ref).ToolsRunning })
	if state := l.guest(ref).PowerState; state != "poweredOn" {
		t.Error(state)
	}
	l.eventually("its tools again", func() bool { return l.guest(ref).ToolsRunning })

	_, err := l.in.guests.change("web", []byte(`{"ignoreShutdown":true}`))
	l.must(err)
	l.must(object.NewVirtualMachine(l.client, ref).RebootGuest(l.ctx))
	if !l.guest(ref).ToolsRunning {
		t.Error("a guest that ignores it went down")
	}
}

func TestGuestWithIPv6Only(t *testing.T) {
	l := newLab(t, func(o *Options) { o.Guest.IPv4, o.Guest.IPv6 = false, true })
	ref := l.booted("web")
	l.eventually("an address", func() bool { return l.guest(ref).GuestAddress != "" })
	ip := netip.MustParseAddr(l.guest(ref).GuestAddress)
	if !netip.MustParsePrefix("fd20::/64").Contains(ip) {
		t.Error(ip)
	}
	for _, address := range l.guest(ref).Cards[0].Addresses {
		if netip.MustParseAddr(address).Is4() {
			t.Error(address)
		}
	}
}

func TestGuestReadsItsSeed(t *testing.T) {
	l := newLab(t)
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err := fmt.Fprint(writer, `
local-hostname: db-1.example.org
network:
  version: 2
  ethernets:
    eth0:
      match: {macaddress: "00:50:56:00:00:07"}
      addresses: [192.0.2.7/24, "2001:db8::7/64"]
`)
	l.must(err)
	l.must(writer.Close())
	ref, fault := l.clone("ubuntu", "db", l.cloneSpec())
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	vm := object.NewVirtualMachine(l.client, ref)
	devices, err := vm.Device(l.ctx)
	l.must(err)
	card := devices.SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard)
	card.GetVirtualEthernetCard().MacAddress = "00:50:56:00:00:07"
	card.GetVirtualEthernetCard().AddressType = "manual"
	task, err := vm.Reconfigure(l.ctx, types.VirtualMachineConfigSpec{
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: card.(types.BaseVirtualDevice),
		}},
		ExtraConfig: []types.BaseOptionValue{
			&types.OptionValue{Key: "guestinfo.metadata", Value: base64.StdEncoding.EncodeToString(packed.Bytes())},
			&types.OptionValue{Key: "guestinfo.metadata.encoding", Value: "gzip+base64"},
		},
	})
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = vm.PowerOn(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	l.eventually("its address", func() bool { return l.guest(ref).GuestAddress == "192.0.2.7" })
	g := l.guest(ref)
	if g.GuestHostName != "db-1.example.org" || len(g.Cards[0].Addresses) != 3 {
		t.Errorf("%+v", g)
	}
}
