package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// GuestSettings say how the operating systems in the machines behave.
type GuestSettings struct {
	Enabled         bool    `json:"enabled"`         // off: no tools, no host name, no address, ever
	DelaySeconds    float64 `json:"delaySeconds"`    // from power-on to tools, host name and addresses
	IPv4            bool    `json:"ipv4"`            // DHCP gives IPv4 addresses
	IPv6            bool    `json:"ipv6"`            // router advertisements give IPv6 addresses
	IPv4Range       string  `json:"ipv4Range"`       // CIDR
	IPv6Range       string  `json:"ipv6Range"`       // CIDR
	ShutdownSeconds float64 `json:"shutdownSeconds"` // from ShutdownGuest to power-off, RebootGuest to going down
	IgnoreShutdown  bool    `json:"ignoreShutdown"`  // ShutdownGuest and RebootGuest are accepted and nothing happens
	// How the first boot ends, done, error or never, and how long after tools are up.
	Bootstrap        string  `json:"bootstrap"`
	BootstrapSeconds float64 `json:"bootstrapSeconds"`
}

// shortestReboot is how long a guest that restarts is down at least, so that somebody can notice.
const shortestReboot = 250 * time.Millisecond

func defaultGuestSettings() GuestSettings {
	return GuestSettings{
		Enabled: true, IPv4: true, IPv4Range: "10.32.0.0/12", IPv6Range: "fd20::/64",
		Bootstrap: bootstrapDone,
	}
}

func (s GuestSettings) validate() error {
	if prefix, err := netip.ParsePrefix(s.IPv4Range); err != nil || !prefix.Addr().Is4() {
		return fmt.Errorf("ipv4Range %q is no IPv4 prefix", s.IPv4Range)
	}
	if prefix, err := netip.ParsePrefix(s.IPv6Range); err != nil || !prefix.Addr().Is6() {
		return fmt.Errorf("ipv6Range %q is no IPv6 prefix", s.IPv6Range)
	}
	if !slices.Contains([]string{bootstrapDone, bootstrapError, bootstrapNever}, s.Bootstrap) {
		return fmt.Errorf("bootstrap %q is none of done, error and never", s.Bootstrap)
	}
	return nil
}

// Timeline says when things happened to a machine, in seconds since the epoch; 0: not yet.
type Timeline struct {
	Created   float64 `json:"created"`
	PoweredOn float64 `json:"poweredOn"`
	Addressed float64 `json:"addressed"`
}

// guest is what the program knows of the operating system in one machine.
type guest struct {
	generation int // of the last power change; work for older ones is dropped
	number     int // decides its addresses
	booted     bool
	static     map[int32][]string // by device key, set by guest customization
	given      map[string]bool    // addresses it had from us
	times      Timeline

	first  FirstBoot
	script string // by which the guest tells that its first boot is over
	word   string // the guestinfo key it told that by
}

type guests struct {
	in *Instance

	mu       sync.Mutex
	settings GuestSettings
	special  map[string]GuestSettings // by machine name
	machines map[moRef]*guest
	next     int
	free     []int
	closed   bool
}

func newGuests(in *Instance, settings GuestSettings) *guests {
	return &guests{
		in:       in,
		settings: settings,
		special:  map[string]GuestSettings{},
		machines: map[moRef]*guest{},
	}
}

// change merges JSON into the settings of all machines, or into those of the machine named.
func (g *guests) change(machine string, body []byte) (GuestSettings, error) {
	g.mu.Lock()
	settings := g.settings
	if special, ok := g.special[machine]; ok {
		settings = special
	}
	if err := json.Unmarshal(body, &settings); err != nil {
		g.mu.Unlock()
		return settings, err
	}
	if err := settings.validate(); err != nil {
		g.mu.Unlock()
		return settings, err
	}
	if machine == "" {
		g.settings = settings
	} else {
		g.special[machine] = settings
	}
	g.mu.Unlock()
	g.adopt() // those whose guest was off until now
	return settings, nil
}

func (g *guests) current() (GuestSettings, map[string]GuestSettings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	special := map[string]GuestSettings{}
	for name, settings := range g.special {
		special[name] = settings
	}
	return g.settings, special
}

func (g *guests) settingsOf(ref moRef) GuestSettings {
	name := g.in.nameOf(ref)
	g.mu.Lock()
	defer g.mu.Unlock()
	if special, ok := g.special[name]; ok {
		return special
	}
	return g.settings
}

// adopt boots the guests of machines that are on already.
func (g *guests) adopt() {
	for _, vm := range g.in.machines() {
		g.created(vm.Self)
		g.mu.Lock()
		booted := g.machines[vm.Self].booted
		g.mu.Unlock()
		if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn && !booted {
			g.powerChanged(vm.Self, types.VirtualMachinePowerStatePoweredOn)
		}
	}
}

func (g *guests) created(ref moRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known(ref)
}

// known returns the record of a machine, which it makes when there is none. g.mu is held.
func (g *guests) known(ref moRef) *guest {
	machine, ok := g.machines[ref]
	if !ok {
		machine = &guest{
			static: map[int32][]string{},
			given:  map[string]bool{},
			times:  Timeline{Created: seconds(time.Now())},
		}
		if n := len(g.free); n > 0 {
			machine.number, g.free = g.free[0], g.free[1:]
		} else {
			g.next++
			machine.number = g.next
		}
		g.machines[ref] = machine
	}
	return machine
}

func (g *guests) removed(ref moRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if machine, ok := g.machines[ref]; ok {
		delete(g.machines, ref)
		g.free = append(g.free, machine.number)
	}
}

func (g *guests) timeline(ref moRef) Timeline {
	g.mu.Lock()
	defer g.mu.Unlock()
	if machine, ok := g.machines[ref]; ok {
		return machine.times
	}
	return Timeline{}
}

func (g *guests) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
}

// powerChanged is called while the simulator holds the machine, so the work is done elsewhere.
func (g *guests) powerChanged(ref moRef, state types.VirtualMachinePowerState) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	machine := g.known(ref)
	machine.generation++
	machine.booted = false
	generation := machine.generation
	if state == types.VirtualMachinePowerStatePoweredOn {
		machine.times.PoweredOn = seconds(time.Now())
	}
	g.mu.Unlock()
	if state == types.VirtualMachinePowerStatePoweredOn {
		go g.powerOn(ref, generation)
	} else {
		go g.halt(ref, generation)
		if state == types.VirtualMachinePowerStatePoweredOff {
			go g.update(ref, generation, g.forgotten)
		}
	}
}

// reboot takes a guest down and up again, unless the machine is not on any more.
func (g *guests) reboot(ref moRef) {
	g.mu.Lock()
	machine, ok := g.machines[ref]
	if !ok || !machine.booted || g.closed {
		g.mu.Unlock()
		return
	}
	machine.generation++
	machine.booted = false
	generation := machine.generation
	g.mu.Unlock()
	g.halt(ref, generation)
	settings := g.settingsOf(ref)
	delay := max(time.Duration(settings.DelaySeconds*float64(time.Second)), shortestReboot)
	time.AfterFunc(delay, func() { g.boot(ref, generation) })
}

func (g *guests) devicesChanged(ref moRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if machine, ok := g.machines[ref]; ok && machine.booted {
		go g.boot(ref, machine.generation)
	}
}

func (g *guests) stillAt(ref moRef, generation int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	machine, ok := g.machines[ref]
	return ok && machine.generation == generation && !g.closed
}

// update changes a machine's properties unless its power state changed again.
func (g *guests) update(
	ref moRef, generation int, changes func(*simulator.VirtualMachine) []types.PropertyChange,
) {
	vm, ok := g.in.registry().Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return
	}
	ctx := g.in.context()
	ctx.WithLock(vm, func() {
		if g.stillAt(ref, generation) {
			if made := changes(vm); len(made) > 0 {
				ctx.Update(vm, made)
			}
		}
	})
}

func (g *guests) powerOn(ref moRef, generation int) {
	g.update(ref, generation, func(*simulator.VirtualMachine) []types.PropertyChange {
		return []types.PropertyChange{{Name: "runtime.bootTime", Val: time.Now().UTC()}}
	})
	settings := g.settingsOf(ref)
	if !settings.Enabled {
		return
	}
	delay := time.Duration(settings.DelaySeconds * float64(time.Second))
	time.AfterFunc(delay, func() { g.boot(ref, generation) })
}

func (g *guests) boot(ref moRef, generation int) {
	settings := g.settingsOf(ref)
	booting := false
	g.update(ref, generation, func(vm *simulator.VirtualMachine) []types.PropertyChange {
		changes, starts := g.running(vm, settings)
		booting = starts
		if starts && settings.BootstrapSeconds == 0 && settings.Bootstrap != bootstrapNever {
			changes = append(changes, g.told(vm, settings)...)
		}
		return changes
	})
	if booting && settings.BootstrapSeconds > 0 {
		g.finishBoot(ref, generation, settings)
	}
}

func (g *guests) halt(ref moRef, generation int) {
	g.update(ref, generation, func(vm *simulator.VirtualMachine) []types.PropertyChange {
		return stopped(vm)
	})
}

func running(tools, state string) []types.PropertyChange {
	status := types.VirtualMachineToolsStatusToolsOk
	heartbeat := types.ManagedEntityStatusGreen
	if tools != string(types.VirtualMachineToolsRunningStatusGuestToolsRunning) {
		status = types.VirtualMachineToolsStatusToolsNotRunning
		heartbeat = types.ManagedEntityStatusGray
	}
	var changes []types.PropertyChange
	for _, prefix := range []string{"guest.", "summary.guest."} {
		changes = append(changes,
			types.PropertyChange{Name: prefix + "toolsStatus", Val: status},
			types.PropertyChange{Name: prefix + "toolsRunningStatus", Val: tools},
			types.PropertyChange{Name: prefix + "toolsVersionStatus", Val: "guestToolsUnmanaged"},
			types.PropertyChange{Name: prefix + "toolsVersionStatus2", Val: "guestToolsUnmanaged"},
		)
	}
	return append(changes,
		types.PropertyChange{Name: "guest.toolsVersion", Val: "12389"},
		types.PropertyChange{Name: "guest.guestState", Val: state},
		types.PropertyChange{Name: "guestHeartbeatStatus", Val: heartbeat},
		types.PropertyChange{Name: "summary.quickStats.guestHeartbeatStatus", Val: heartbeat},
	)
}

// running are the properties of a machine whose guest is up, and whether it comes up just now; they
// are made in the machine's lock.
func (g *guests) running(
	vm *simulator.VirtualMachine, settings GuestSettings,
) ([]types.PropertyChange, bool) {
	seed := cloudInit(vm.Config.ExtraConfig)
	net, address := g.network(vm, settings, seed)
	host := seed.hostName()
	if host == "" && vm.Guest.CustomizationInfo != nil {
		host = vm.Guest.HostName
	}
	if host == "" {
		host = vm.Name
	}
	g.mu.Lock()
	machine := g.known(vm.Self)
	starts := !machine.booted
	if starts {
		machine.readSeed(vm, seed)
	}
	machine.booted = true
	if address != "" && machine.times.Addressed == 0 {
		machine.times.Addressed = seconds(time.Now())
	}
	g.mu.Unlock()

	changes := running(string(types.VirtualMachineToolsRunningStatusGuestToolsRunning), "running")
	for _, prefix := range []string{"guest.", "summary.guest."} {
		changes = append(changes,
			types.PropertyChange{Name: prefix + "hostName", Val: host},
			types.PropertyChange{Name: prefix + "ipAddress", Val: address},
			types.PropertyChange{Name: prefix + "guestId", Val: vm.Config.GuestId},
			types.PropertyChange{Name: prefix + "guestFullName", Val: vm.Config.GuestFullName},
		)
	}
	return append(changes, types.PropertyChange{Name: "guest.net", Val: net}), starts
}

// stopped are the properties of a machine whose guest is down.
func stopped(vm *simulator.VirtualMachine) []types.PropertyChange {
	net := make([]types.GuestNicInfo, len(vm.Guest.Net))
	for i, nic := range vm.Guest.Net {
		net[i] = types.GuestNicInfo{
			Network: nic.Network, MacAddress: nic.MacAddress, DeviceConfigId: nic.DeviceConfigId,
		}
	}
	changes := running(string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning), "notRunning")
	for _, name := range []string{"guest.hostName", "guest.ipAddress"} {
		changes = append(changes,
			types.PropertyChange{Name: name, Val: ""},
			types.PropertyChange{Name: "summary." + name, Val: ""},
		)
	}
	return append(changes, types.PropertyChange{Name: "guest.net", Val: net})
}

func seconds(at time.Time) float64 { return float64(at.UnixMicro()) / 1e6 }
