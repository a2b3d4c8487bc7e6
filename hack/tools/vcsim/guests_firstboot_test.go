package main

import (
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

const telling = "#!/bin/sh\nid='abc'\ntold=\"info-set guestinfo.test.word $id:$1\"\n"

func option(key, value string) types.BaseOptionValue {
	return &types.OptionValue{Key: key, Value: value}
}

func (l *lab) write(ref moRef, extra ...types.BaseOptionValue) {
	l.Helper()
	task, err := object.NewVirtualMachine(l.client, ref).Reconfigure(
		l.ctx, types.VirtualMachineConfigSpec{ExtraConfig: extra},
	)
	l.must(err)
	l.must(task.Wait(l.ctx))
}

func (l *lab) cycle(ref moRef) {
	l.Helper()
	vm := object.NewVirtualMachine(l.client, ref)
	task, err := vm.PowerOff(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = vm.PowerOn(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
}

func TestGuestTellsWhenItsFirstBootIsOver(t *testing.T) {
	l := newLab(t)
	ref := l.booted("web", option("guestinfo.metadata", "instance-id: i-1"),
		option("guestinfo.userdata", "#cloud-config"), option("guestinfo.vendordata", telling))
	word := func() string { return l.guest(ref).ExtraConfig["guestinfo.test.word"] }
	l.eventually("its word", func() bool { return word() == "abc:done" })
	if first := l.guest(ref).FirstBoot; first.Runs != 1 || first.UserData != "#cloud-config" || !first.Done {
		t.Errorf("%+v", first)
	}
	task, err := object.NewVirtualMachine(l.client, ref).PowerOff(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	l.eventually("a word that is forgotten", func() bool { return word() == "" })

	l.write(ref, option("guestinfo.userdata", ""), option("guestinfo.vendordata", ""))
	task, err = object.NewVirtualMachine(l.client, ref).PowerOn(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	l.eventually("the same word", func() bool { return word() == "abc:done" })
	if first := l.guest(ref).FirstBoot; first.Runs != 1 || first.Boots != 2 || first.Instances != 1 {
		t.Errorf("%+v", first)
	}
}

func TestGuestThatIsInterruptedReadsItsUserDataAgain(t *testing.T) {
	l := newLab(t)
	_, err := l.in.guests.change("", []byte(`{"bootstrap":"never"}`))
	l.must(err)
	ref := l.booted("web", option("guestinfo.metadata", "instance-id: i-1"),
		option("guestinfo.userdata", "first"), option("guestinfo.vendordata", telling))
	l.eventually("a boot", func() bool { return l.guest(ref).FirstBoot.Runs == 1 })
	l.write(ref, option("guestinfo.userdata", ""))
	_, err = l.in.guests.change("", []byte(`{"bootstrap":"done"}`))
	l.must(err)
	l.cycle(ref)
	l.eventually("another boot", func() bool { return l.guest(ref).FirstBoot.Done })
	if first := l.guest(ref).FirstBoot; first.Runs != 2 || first.UserData != "" {
		t.Errorf("what was cleared too early is not there any more: %+v", first)
	}
}

func TestGuestWithAnotherInstanceIDIsNew(t *testing.T) {
	l := newLab(t)
	ref := l.booted("web", option("guestinfo.metadata", "instance-id: i-1"))
	l.eventually("a boot", func() bool { return l.guest(ref).FirstBoot.Done })
	l.write(ref, option("guestinfo.metadata", ""))
	l.cycle(ref)
	l.eventually("a new instance", func() bool { return l.guest(ref).FirstBoot.Instances == 2 })
}

func TestGuestTellsByItsIgnitionConfiguration(t *testing.T) {
	l := newLab(t)
	source := strings.NewReplacer("\n", "%0A", `"`, "%22", " ", "%20", "#", "%23", "$", "%24").Replace(telling)
	config := `{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/x","contents":{"source":"data:,` +
		source + `"}}]}}`
	ref := l.booted("web", option("guestinfo.ignition.config.data", config))
	l.eventually("its word", func() bool {
		return l.guest(ref).ExtraConfig["guestinfo.test.word"] == "abc:done"
	})
}

func TestGuestThatFailsSaysSo(t *testing.T) {
	l := newLab(t)
	_, err := l.in.guests.change("web", []byte(`{"bootstrap":"error","bootstrapSeconds":0.05}`))
	l.must(err)
	ref := l.booted("web", option("guestinfo.vendordata", telling))
	l.eventually("its word", func() bool {
		return l.guest(ref).ExtraConfig["guestinfo.test.word"] == "abc:error"
	})
	if _, err := l.in.guests.change("", []byte(`{"bootstrap":"perhaps"}`)); err == nil {
		t.Error("a word nobody knows was taken")
	}
}
