package main

import (
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

// reconfigure waits for the task and gives its fault.
func (l *lab) reconfigure(ref moRef, spec types.VirtualMachineConfigSpec) types.BaseMethodFault {
	l.Helper()
	task, err := l.machine(l.vm(ref).Name).Reconfigure(l.ctx, spec)
	if err == nil {
		err = task.Wait(l.ctx)
	}
	if err == nil {
		return nil
	}
	return faultOf(err)
}

func TestSizesChangeWhileItRunsOnlyWhereThatIsEnabled(t *testing.T) {
	l := newLab(t)
	plain, hot := l.cloneSpec(), l.cloneSpec()
	plain.PowerOn, hot.PowerOn = true, true
	hot.Config.CpuHotAddEnabled, hot.Config.MemoryHotAddEnabled = types.NewBool(true), types.NewBool(true)
	cold, fault := l.clone("ubuntu", "cold", plain)
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	warm, fault := l.clone("ubuntu", "warm", hot)
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	wants[*types.CpuHotPlugNotSupported](l, l.reconfigure(cold, types.VirtualMachineConfigSpec{NumCPUs: 4}))
	wants[*types.MemoryHotPlugNotSupported](l, l.reconfigure(cold, types.VirtualMachineConfigSpec{MemoryMB: 4096}))
	if fault := l.reconfigure(warm, types.VirtualMachineConfigSpec{NumCPUs: 4, MemoryMB: 4096}); fault != nil {
		t.Fatalf("%#v", fault)
	}
	wants[*types.CpuHotPlugNotSupported](l, l.reconfigure(warm, types.VirtualMachineConfigSpec{NumCPUs: 2}))
	odd := l.cloneSpec()
	odd.Config.NumCPUs, odd.Config.NumCoresPerSocket = 6, types.NewInt32(4)
	_, fault = l.clone("ubuntu", "odd", odd)
	wants[*types.InvalidArgument](l, fault)
}

func TestWhatAMachineCannotHaveFailsItsClone(t *testing.T) {
	l := newLab(t)
	add := func(device types.BaseVirtualDevice) []types.BaseVirtualDeviceConfigSpec {
		return []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device,
		}}
	}
	profile := []types.BaseVirtualMachineProfileSpec{
		&types.VirtualMachineDefinedProfileSpec{ProfileId: "no-such-policy"},
	}
	bios, policy, device := l.cloneSpec(), l.cloneSpec(), l.cloneSpec()
	bios.Config.Firmware, bios.Config.DeviceChange = "bios", add(&types.VirtualTPM{})
	policy.Location.Profile = profile
	device.Config.DeviceChange = add(&types.VirtualPCIPassthrough{})
	_, fault := l.clone("ubuntu", "bios", bios)
	wants[*types.InvalidVmConfig](l, fault)
	_, fault = l.clone("ubuntu", "policy", policy)
	wants[*types.InvalidArgument](l, fault)
	_, fault = l.clone("ubuntu", "device", device)
	wants[*types.InvalidDeviceSpec](l, fault)
	for _, name := range []string{"bios", "policy", "device"} {
		if _, err := l.finder.VirtualMachine(l.ctx, name); err == nil {
			t.Errorf("%s was left behind", name)
		}
	}
}

func TestPCIDevicesNeedTheirHostAndAllMemory(t *testing.T) {
	l := newLab(t, func(o *Options) { o.PCI = map[string][]string{"": {"gpu"}} })
	device := func(label string) *types.VirtualPCIPassthrough {
		return &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
			Backing: &types.VirtualPCIPassthroughDynamicBackingInfo{
				CustomLabel:   label,
				AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{{VendorId: 1, DeviceId: 2}},
			},
		}}
	}
	clone := func(name, label string, locked bool) types.BaseMethodFault {
		spec := l.cloneSpec()
		spec.PowerOn = true
		spec.Config.MemoryReservationLockedToMax = types.NewBool(locked)
		spec.Config.DeviceChange = []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device(label),
		}}
		_, fault := l.clone("ubuntu", name, spec)
		return fault
	}
	if fault := clone("fine", "gpu", true); fault != nil {
		t.Fatalf("%#v", fault)
	}
	wants[*types.InvalidVmConfig](l, clone("swapped", "gpu", false))
	wants[*types.NoCompatibleHost](l, clone("elsewhere", "tpu", true))
}
