package main

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// FirstBoot is what a guest has made of its seed so far. It lives on the guest's disk: whatever
// becomes of the seed later changes nothing of it.
type FirstBoot struct {
	InstanceID string `json:"instanceId"` // whose first boot it is
	Instances  int    `json:"instances"`  // how often it took itself for a new one
	Boots      int    `json:"boots"`      // boots as this instance
	Runs       int    `json:"runs"`       // boots that ran the user data
	UserData   string `json:"userData"`   // what the last of them read
	Done       bool   `json:"done"`
}

// How the first boot of a guest ends, as GuestSettings have it.
const (
	bootstrapDone  = "done"
	bootstrapError = "error"
	bootstrapNever = "never"
)

var (
	tellsTo = regexp.MustCompile(`info-set (guestinfo\.[A-Za-z.]+) \$id:`)
	tellsAs = regexp.MustCompile(`(?m)^id='([^'\n]*)'$`)
)

// seedText is a guestinfo value as a guest reads it; "" when it is absent, empty or broken.
func seedText(extraConfig []types.BaseOptionValue, key string) string {
	var data, encoding string
	for _, option := range extraConfig {
		text, _ := option.GetOptionValue().Value.(string)
		switch option.GetOptionValue().Key {
		case "guestinfo." + key:
			data = text
		case "guestinfo." + key + ".encoding":
			encoding = text
		}
	}
	decoded, err := decodeGuestinfo(data, encoding)
	if err != nil || strings.TrimSpace(string(decoded)) == "---" {
		return ""
	}
	return string(decoded)
}

// program is the script in a seed by which the guest tells that its first boot is over: vendor data
// for cloud-init, a file of the configuration for Ignition.
func program(extraConfig []types.BaseOptionValue) string {
	if script := seedText(extraConfig, "vendordata"); strings.HasPrefix(script, "#!") {
		return script
	}
	var config struct {
		Storage struct {
			Files []struct {
				Contents struct {
					Source string `json:"source"`
				} `json:"contents"`
			} `json:"files"`
		} `json:"storage"`
	}
	if json.Unmarshal([]byte(seedText(extraConfig, "ignition.config.data")), &config) != nil {
		return ""
	}
	for _, file := range config.Storage.Files {
		text, err := url.PathUnescape(strings.TrimPrefix(file.Contents.Source, "data:,"))
		if err == nil && strings.HasPrefix(text, "#!") && tellsTo.MatchString(text) {
			return text
		}
	}
	return ""
}

// readSeed is what a booting guest does with its seed, as cloud-init does: a new instance runs the
// user data, and so does every boot until the first one was finished. g.mu is held.
func (machine *guest) readSeed(vm *simulator.VirtualMachine, seed cloudInitSeed) {
	first := &machine.first
	id := seed.InstanceID
	if id == "" {
		id = vm.Config.Uuid
	}
	if id != first.InstanceID {
		*first = FirstBoot{InstanceID: id, Instances: first.Instances + 1}
		machine.script = ""
	}
	first.Boots++
	if first.Done {
		return
	}
	first.Runs++
	first.UserData = seedText(vm.Config.ExtraConfig, "userdata")
	if first.UserData == "" {
		first.UserData = seedText(vm.Config.ExtraConfig, "ignition.config.data")
	}
	if script := program(vm.Config.ExtraConfig); script != "" {
		machine.script = script
	}
}

// finishBoot ends a boot some time later: the first one is done or has failed, and the guest tells.
func (g *guests) finishBoot(ref moRef, generation int, settings GuestSettings) {
	if settings.Bootstrap == bootstrapNever {
		return
	}
	delay := time.Duration(settings.BootstrapSeconds * float64(time.Second))
	time.AfterFunc(delay, func() {
		g.update(ref, generation, func(vm *simulator.VirtualMachine) []types.PropertyChange {
			return g.told(vm, settings)
		})
	})
}

// told is the change by which a guest tells how its first boot ended, if it knows how to tell.
func (g *guests) told(vm *simulator.VirtualMachine, settings GuestSettings) []types.PropertyChange {
	g.mu.Lock()
	defer g.mu.Unlock()
	machine := g.known(vm.Self)
	if !machine.booted {
		return nil
	}
	word := bootstrapDone
	if !machine.first.Done && settings.Bootstrap == bootstrapError {
		word = bootstrapError
	}
	machine.first.Done = word == bootstrapDone
	to, as := tellsTo.FindStringSubmatch(machine.script), tellsAs.FindStringSubmatch(machine.script)
	if to == nil || as == nil {
		return nil
	}
	machine.word = to[1]
	return setOption(vm, machine.word, as[1]+":"+word)
}

// forgotten is the change by which a machine that is switched off forgets what its guest told it.
func (g *guests) forgotten(vm *simulator.VirtualMachine) []types.PropertyChange {
	g.mu.Lock()
	defer g.mu.Unlock()
	machine := g.known(vm.Self)
	if machine.word == "" {
		return nil
	}
	return setOption(vm, machine.word, "")
}

func setOption(vm *simulator.VirtualMachine, key, value string) []types.PropertyChange {
	option := &types.OptionValue{Key: key, Value: value}
	merged := mergeOptions(vm.Config.ExtraConfig, []types.BaseOptionValue{option})
	return []types.PropertyChange{{Name: "config.extraConfig", Val: merged}}
}

func (g *guests) firstBoot(ref moRef) FirstBoot {
	g.mu.Lock()
	defer g.mu.Unlock()
	if machine, ok := g.machines[ref]; ok {
		return machine.first
	}
	return FirstBoot{}
}
