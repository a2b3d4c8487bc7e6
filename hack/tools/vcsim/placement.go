package main

import (
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// place is where a new machine goes.
type place struct {
	folder    *simulator.Folder
	pool      moRef
	host      *simulator.HostSystem
	datastore *simulator.Datastore
	dc        *simulator.Datacenter
}

// placements spreads machines over hosts.
type placements struct {
	mu   sync.Mutex
	last int
}

// host finds where a machine runs: the host that was asked for, or one that DRS would choose.
// Source: VirtualMachineRelocateSpec.host in the API reference.
func (in *Instance) placeHost(
	pool moRef, wanted *moRef, datastore *simulator.Datastore,
) (*simulator.HostSystem, types.BaseMethodFault) {
	entity, ok := in.entity(pool)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: pool}
	}
	ref, compute := in.computeOf(entity)
	if compute == nil {
		return nil, &types.InvalidArgument{InvalidProperty: "spec.location.pool"}
	}
	if wanted != nil {
		host, ok := in.registry().Get(*wanted).(*simulator.HostSystem)
		if !ok || host.Parent == nil || *host.Parent != ref {
			return nil, &types.InvalidArgument{InvalidProperty: "spec.location.host"}
		}
		if fault := usable(host, datastore); fault != nil {
			return nil, fault
		}
		return host, nil
	}
	if cluster, ok := in.registry().Get(ref).(*simulator.ClusterComputeResource); ok && !placesByItself(cluster) {
		return nil, &types.InvalidArgument{InvalidProperty: "spec.location.host"}
	}
	fault := &types.NoCompatibleHost{}
	in.places.mu.Lock()
	defer in.places.mu.Unlock()
	for i := range compute.Host {
		in.places.last++
		candidate := compute.Host[(in.places.last+i)%len(compute.Host)]
		host, ok := in.registry().Get(candidate).(*simulator.HostSystem)
		if !ok {
			continue
		}
		reason := usable(host, datastore)
		if reason == nil {
			return host, nil
		}
		fault.Host = append(fault.Host, candidate)
		fault.Error = append(fault.Error, types.LocalizedMethodFault{Fault: reason})
	}
	return nil, fault
}

// placesByItself says whether the cluster chooses hosts: DRS is on and not in manual mode.
func placesByItself(cluster *simulator.ClusterComputeResource) bool {
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok || config.DrsConfig.Enabled == nil || !*config.DrsConfig.Enabled {
		return false
	}
	return config.DrsConfig.DefaultVmBehavior != types.DrsBehaviorManual
}

func usable(host *simulator.HostSystem, datastore *simulator.Datastore) types.BaseMethodFault {
	switch {
	case host.Runtime.ConnectionState != types.HostSystemConnectionStateConnected:
		return &types.HostNotConnected{}
	case host.Runtime.InMaintenanceMode:
		return &types.InvalidState{}
	case datastore != nil && simulator.FindReference(host.Datastore, datastore.Self) == nil:
		return &types.DatastoreNotWritableOnHost{
			InvalidDatastore: types.InvalidDatastore{Datastore: &datastore.Self, Name: datastore.Name},
			Host:             host.Self,
		}
	}
	return nil
}

// setDRS configures all clusters: off, manual, partiallyAutomated or fullyAutomated.
func (in *Instance) setDRS(mode string) {
	for _, entity := range in.registry().All("ClusterComputeResource") {
		in.setClusterDRS(entity, mode)
	}
}

func (in *Instance) setClusterDRS(entity mo.Entity, mode string) {
	cluster, ok := entity.(*simulator.ClusterComputeResource)
	if !ok {
		return
	}
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return
	}
	changed := *config
	changed.DrsConfig.Enabled = types.NewBool(mode != "off")
	if mode != "off" {
		changed.DrsConfig.DefaultVmBehavior = types.DrsBehavior(mode)
	}
	in.registry().AtomicUpdate(in.context(), cluster, []types.PropertyChange{
		{Name: "configurationEx", Val: &changed},
	})
}

func validDRS(mode string) bool {
	switch mode {
	case "off", string(types.DrsBehaviorManual), string(types.DrsBehaviorPartiallyAutomated),
		string(types.DrsBehaviorFullyAutomated):
		return true
	}
	return false
}
