package main

import (
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// leases remembers which machines are being imported. A vCenter takes such a machine away when its
// client gives up, or is not heard of for the time of the lease; the simulator leaves it there.
type leases struct {
	in      *Instance
	timeout time.Duration // 0: leases never run out

	mu   sync.Mutex
	open map[moRef]*openLease
}

type openLease struct {
	ctx   *simulator.Context
	lease *simulator.HttpNfcLease
	timer *time.Timer
}

func newLeases(in *Instance, timeout time.Duration) *leases {
	return &leases{in: in, timeout: timeout, open: map[moRef]*openLease{}}
}

// opened takes note of a lease that an import was answered with.
func (l *leases) opened(ctx *simulator.Context, ref moRef) {
	lease, ok := ctx.Session.Get(ref).(*simulator.HttpNfcLease)
	if !ok {
		return
	}
	entry := &openLease{ctx: clone(ctx), lease: lease}
	if l.timeout > 0 {
		entry.timer = time.AfterFunc(l.timeout, func() { l.expire(ref) })
	}
	l.mu.Lock()
	l.open[ref] = entry
	l.mu.Unlock()
}

// heard sees the calls on leases before they are carried out.
func (l *leases) heard(method *simulator.Method) types.BaseMethodFault {
	if method.This.Type != "HttpNfcLease" {
		return nil
	}
	l.mu.Lock()
	entry := l.open[plain(method.This)]
	l.mu.Unlock()
	if entry == nil {
		return nil
	}
	switch method.Name {
	case "HttpNfcLeaseProgress":
		if entry.timer != nil {
			entry.timer.Reset(l.timeout)
		}
	case "HttpNfcLeaseComplete":
		if l.lacksFiles(entry) {
			return &types.InvalidState{}
		}
		l.forget(method.This)
	case "HttpNfcLeaseAbort":
		l.forget(method.This)
		l.remove(entry)
	}
	return nil
}

// lacksFiles says whether a disk of the machine was not sent.
func (l *leases) lacksFiles(entry *openLease) bool {
	info := l.info(entry)
	if info == nil {
		return true
	}
	wanted := 0
	for _, target := range info.DeviceUrl {
		if target.Disk != nil && *target.Disk {
			wanted++
		}
	}
	res := entry.lease.HttpNfcLeaseGetManifest(entry.ctx, &types.HttpNfcLeaseGetManifest{This: entry.lease.Self})
	manifest, ok := res.(*methods.HttpNfcLeaseGetManifestBody)
	return !ok || len(manifest.Res.Returnval) < wanted
}

func (l *leases) info(entry *openLease) *types.HttpNfcLeaseInfo {
	var info *types.HttpNfcLeaseInfo
	l.in.context().WithLock(entry.lease, func() { info = entry.lease.Info })
	return info
}

func (l *leases) forget(ref moRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.open[plain(ref)]
	if entry != nil && entry.timer != nil {
		entry.timer.Stop()
	}
	delete(l.open, plain(ref))
}

func (l *leases) expire(ref moRef) {
	l.mu.Lock()
	entry := l.open[ref]
	l.mu.Unlock()
	if entry == nil {
		return
	}
	l.forget(ref)
	entry.lease.HttpNfcLeaseAbort(entry.ctx, &types.HttpNfcLeaseAbort{This: ref})
	l.remove(entry)
}

// remove takes away the machine that was not imported to the end.
func (l *leases) remove(entry *openLease) {
	info := l.info(entry)
	if info == nil {
		return
	}
	vm, ok := l.in.registry().Get(info.Entity).(*simulator.VirtualMachine)
	if ok {
		_ = l.in.removeMachine(l.in.context(), vm)
	}
}
