package main

import (
	"slices"
	"sync"

	"github.com/vmware/govmomi/object"
	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmsimulator "github.com/vmware/govmomi/pbm/simulator"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// pbmPath is where the simulator serves storage policies.
const pbmPath = "/pbm"

// The units that disks can have on a controller.
const (
	scsiSelf  = 7
	scsiUnits = 16
	nvmeUnits = 15
)

// policies are which datastores fulfil a storage policy, and which machines and disks got which.
type policies struct {
	mu        sync.Mutex
	fulfilled map[string][]string          // names of datastores, by the name of the policy
	given     map[string]map[string]string // by machine, then "home" or the label of a disk
}

func (p *policies) give(machine, what string, profiles []types.BaseVirtualMachineProfileSpec) {
	id := profileID(profiles)
	if id == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == nil {
		p.given = map[string]map[string]string{}
	}
	if p.given[machine] == nil {
		p.given[machine] = map[string]string{}
	}
	p.given[machine][what] = id
}

func (p *policies) of(machine string) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]string{}
	for what, id := range p.given[machine] {
		found[what] = id
	}
	return found
}

// allows says whether a datastore fulfils a policy; every one does while nothing else was said.
func (p *policies) allows(policy, datastore string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	names, said := p.fulfilled[policy]
	return !said || slices.Contains(names, datastore)
}

func profileID(profiles []types.BaseVirtualMachineProfileSpec) string {
	for _, profile := range profiles {
		if defined, ok := profile.(*types.VirtualMachineDefinedProfileSpec); ok {
			return defined.ProfileId
		}
	}
	return ""
}

// profileName is the name of a storage policy, "" when there is none of that id.
func (in *Instance) profileName(id string) string {
	for _, object := range in.service.Context.For(pbmPath).Map.AllReference("") {
		manager, ok := object.(*pbmsimulator.ProfileManager)
		if !ok {
			continue
		}
		res := manager.PbmRetrieveContent(&pbmtypes.PbmRetrieveContent{
			ProfileIds: []pbmtypes.PbmProfileId{{UniqueId: id}},
		})
		body, ok := res.(*pbmmethods.PbmRetrieveContentBody)
		if ok && body.Res != nil && len(body.Res.Returnval) > 0 {
			return body.Res.Returnval[0].GetPbmProfile().Name
		}
	}
	return ""
}

// checkProfiles refuses policies that do not exist, which the simulator looks away from.
func (in *Instance) checkProfiles(
	property string, profiles []types.BaseVirtualMachineProfileSpec,
) types.BaseMethodFault {
	if id := profileID(profiles); id != "" && in.profileName(id) == "" {
		return &types.InvalidArgument{InvalidProperty: property}
	}
	return nil
}

// installPolicies puts the strict solver in front of the simulator's, for which all is compatible.
func (in *Instance) installPolicies() {
	registry := in.service.Context.For(pbmPath).Map
	registry.Handler = func(
		_ *simulator.Context, method *simulator.Method,
	) (mo.Reference, types.BaseMethodFault) {
		solver, ok := registry.Get(method.This).(*pbmsimulator.PlacementSolver)
		if !ok {
			return nil, nil
		}
		return in.instead(method, &strictSolver{PlacementSolver: solver, in: in}), nil
	}
}

// strictSolver looks only at the datastores it was asked about.
type strictSolver struct {
	*pbmsimulator.PlacementSolver

	in *Instance
}

// PbmCheckRequirements tells what does not fulfil a policy with an error.
func (s *strictSolver) PbmCheckRequirements(
	_ *simulator.Context, req *pbmtypes.PbmCheckRequirements,
) soap.HasFault {
	body := &pbmmethods.PbmCheckRequirementsBody{Res: &pbmtypes.PbmCheckRequirementsResponse{}}
	var names []string
	for _, wanted := range req.PlacementSubjectRequirement {
		if need, ok := wanted.(*pbmtypes.PbmPlacementCapabilityProfileRequirement); ok {
			names = append(names, s.in.profileName(need.ProfileId.UniqueId))
		}
	}
	for _, hub := range req.HubsToSearch {
		result := pbmtypes.PbmPlacementCompatibilityResult{Hub: hub}
		store := s.in.nameOf(moRef{Type: hub.HubType, Value: hub.HubId})
		for _, name := range names {
			if !s.in.policies.allows(name, store) {
				result.Error = append(result.Error, types.LocalizedMethodFault{
					Fault: &pbmtypes.PbmFault{}, LocalizedMessage: "not compatible",
				})
			}
		}
		body.Res.Returnval = append(body.Res.Returnval, result)
	}
	return body
}

// shape is what a configuration is checked against: that of the machine, or of a clone's source.
type shape struct {
	on       bool
	config   *types.VirtualMachineConfigInfo
	firmware string
	locked   bool
}

func shapeOf(vm *simulator.VirtualMachine) shape {
	return shape{
		on:       vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn,
		config:   vm.Config,
		firmware: vm.Config.Firmware,
		locked:   isTrue(vm.Config.MemoryReservationLockedToMax),
	}
}

func number(value *int32) int32 {
	if value == nil {
		return 0
	}
	return *value
}

func isTrue(value *bool) bool { return value != nil && *value }

// checkSpec refuses what vCenter refuses of a configuration, and the simulator takes.
func (in *Instance) checkSpec(s shape, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	if s.on {
		if fault := checkHotPlug(s, spec); fault != nil {
			return fault
		}
	}
	cpus, cores := spec.NumCPUs, number(s.config.Hardware.NumCoresPerSocket)
	if cpus == 0 {
		cpus = s.config.Hardware.NumCPU
	}
	if spec.NumCoresPerSocket != nil {
		cores = *spec.NumCoresPerSocket
	}
	if cores > 0 && cpus%cores != 0 {
		return &types.InvalidArgument{InvalidProperty: "configSpec.numCoresPerSocket"}
	}
	firmware := s.firmware
	if spec.Firmware != "" {
		firmware = spec.Firmware
	}
	for i, change := range spec.DeviceChange {
		if fault := in.checkSpecDevice(int32(i), firmware, change); fault != nil {
			return fault
		}
	}
	return nil
}

func checkHotPlug(s shape, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	has := s.config.Hardware
	if spec.NumCPUs != 0 && spec.NumCPUs != has.NumCPU {
		if !isTrue(s.config.CpuHotAddEnabled) || spec.NumCPUs < has.NumCPU {
			return &types.CpuHotPlugNotSupported{}
		}
	}
	if cores := spec.NumCoresPerSocket; cores != nil && *cores != number(has.NumCoresPerSocket) {
		return &types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOff,
			ExistingState:  types.VirtualMachinePowerStatePoweredOn,
		}
	}
	if spec.MemoryMB != 0 && spec.MemoryMB != int64(has.MemoryMB) {
		if !isTrue(s.config.MemoryHotAddEnabled) || spec.MemoryMB < int64(has.MemoryMB) {
			return &types.MemoryHotPlugNotSupported{}
		}
	}
	if spec.NestedHVEnabled != nil || spec.Firmware != "" {
		return &types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOff,
			ExistingState:  types.VirtualMachinePowerStatePoweredOn,
		}
	}
	return nil
}

func (in *Instance) checkSpecDevice(
	index int32, firmware string, change types.BaseVirtualDeviceConfigSpec,
) types.BaseMethodFault {
	if change == nil || change.GetVirtualDeviceConfigSpec().Device == nil {
		return nil // told elsewhere
	}
	spec := change.GetVirtualDeviceConfigSpec()
	if fault := in.checkProfiles("spec.deviceChange.profile", spec.Profile); fault != nil {
		return fault
	}
	if spec.Operation != types.VirtualDeviceConfigSpecOperationAdd {
		return nil
	}
	switch device := spec.Device.(type) {
	case *types.VirtualTPM:
		if firmware != string(types.GuestOsDescriptorFirmwareTypeEfi) {
			return &types.InvalidVmConfig{Property: "configSpec.firmware"}
		}
	case *types.VirtualPCIPassthrough:
		backing, ok := device.Backing.(*types.VirtualPCIPassthroughDynamicBackingInfo)
		if !ok || len(backing.AllowedDevice) == 0 {
			return invalidDevice(index, "virtualDeviceSpec.device.backing")
		}
	}
	return nil
}

// checkUnits refuses places on a controller that it does not have.
func (h hardware) checkUnits(
	index int32, disk *types.VirtualDisk, added object.VirtualDeviceList,
) types.BaseMethodFault {
	controller := h.devices.FindByKey(disk.ControllerKey)
	if controller == nil {
		controller = added.FindByKey(disk.ControllerKey)
	}
	if disk.UnitNumber == nil || controller == nil {
		return nil
	}
	unit, most, self := *disk.UnitNumber, int32(scsiUnits), int32(-1)
	switch controller.(type) {
	case types.BaseVirtualSCSIController:
		self = scsiSelf
	case *types.VirtualNVMEController:
		most = nvmeUnits
	default:
		return nil
	}
	if unit < 0 || unit >= most || unit == self {
		return invalidDevice(index, "virtualDeviceSpec.device.unitNumber")
	}
	return nil
}

// checkPassthrough refuses to start a machine with PCI devices whose memory may be swapped, and on
// hosts that do not have them.
func (vm *strictMachine) checkPassthrough() types.BaseMethodFault {
	for _, device := range vm.Config.Hardware.Device {
		pci, ok := device.(*types.VirtualPCIPassthrough)
		if !ok {
			continue
		}
		if !isTrue(vm.Config.MemoryReservationLockedToMax) {
			return &types.InvalidVmConfig{Property: "configSpec.memoryReservationLockedToMax"}
		}
		backing, ok := pci.Backing.(*types.VirtualPCIPassthroughDynamicBackingInfo)
		if !ok || vm.Runtime.Host == nil {
			continue
		}
		if !slices.Contains(vm.in.options.labelsOf(vm.in.nameOf(*vm.Runtime.Host)), backing.CustomLabel) {
			return &types.NoCompatibleHost{Host: []moRef{*vm.Runtime.Host}}
		}
	}
	return nil
}

// PowerOnVMTask looks at the PCI devices first.
func (vm *strictMachine) PowerOnVMTask(ctx *simulator.Context, req *types.PowerOnVM_Task) soap.HasFault {
	if fault := vm.checkPassthrough(); fault != nil {
		return vm.in.failTask(vm.Self, fault).PowerOnVMTask(ctx, req)
	}
	return vm.VirtualMachine.PowerOnVMTask(ctx, req)
}

// strictBrowser offers the PCI devices that the program was started with.
type strictBrowser struct {
	*simulator.EnvironmentBrowser

	in *Instance
}

// QueryConfigTarget tells the devices of all hosts of the cluster, or of the one that is asked for.
func (b *strictBrowser) QueryConfigTarget(
	ctx *simulator.Context, req *types.QueryConfigTarget,
) soap.HasFault {
	res := b.EnvironmentBrowser.QueryConfigTarget(ctx, req)
	body, ok := res.(*methods.QueryConfigTargetBody)
	if !ok || body.Res == nil || body.Res.Returnval == nil {
		return res
	}
	target := *body.Res.Returnval
	for _, host := range b.hosts(req.Host) {
		for n, label := range b.in.options.labelsOf(b.in.nameOf(host)) {
			target.DynamicPassthrough = append(target.DynamicPassthrough,
				types.VirtualMachineDynamicPassthroughInfo{
					VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: label},
					VendorName:               "ACME",
					DeviceName:               "accelerator",
					CustomLabel:              label,
					VendorId:                 0x10de,
					DeviceId:                 int32(0x2000 + n),
				})
		}
	}
	body.Res.Returnval = &target
	return body
}

func (b *strictBrowser) hosts(wanted *moRef) []moRef {
	if wanted != nil {
		return []moRef{*wanted}
	}
	for _, entity := range b.in.registry().All("ClusterComputeResource") {
		cluster, ok := entity.(*simulator.ClusterComputeResource)
		if ok && cluster.EnvironmentBrowser != nil && *cluster.EnvironmentBrowser == b.Self {
			return cluster.Host
		}
	}
	return nil
}

// labelsOf are the hardware labels of a host: those of all hosts, and its own.
func (o *Options) labelsOf(host string) []string {
	return append(slices.Clone(o.PCI[""]), o.PCI[host]...)
}

// connectOpaqueNetworks lets all hosts see the opaque networks, which the simulator puts beside them.
func (in *Instance) connectOpaqueNetworks() {
	for _, entity := range in.registry().All("OpaqueNetwork") {
		for _, other := range in.registry().All("HostSystem") {
			host, ok := other.(*simulator.HostSystem)
			if ok && !slices.Contains(host.Network, entity.Reference()) {
				host.Network = append(host.Network, entity.Reference())
			}
		}
	}
}
