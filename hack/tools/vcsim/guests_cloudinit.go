package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/vmware/govmomi/vim25/types"
)

// cloudInitSeed is the part of cloud-init's metadata for the VMware datasource that a guest here
// acts upon: its identity, its host name and its network configuration (version 2).
type cloudInitSeed struct {
	InstanceID    string `yaml:"instance-id"`
	LocalHostname string `yaml:"local-hostname"`
	Hostname      string `yaml:"hostname"`
	Network       struct {
		Ethernets map[string]*cloudInitCard `yaml:"ethernets"`
	} `yaml:"network"`
}

type cloudInitCard struct {
	Match struct {
		MACAddress string `yaml:"macaddress"`
	} `yaml:"match"`
	Addresses []string `yaml:"addresses"`
	DHCP4     bool     `yaml:"dhcp4"`
	DHCP6     bool     `yaml:"dhcp6"`
	AcceptRA  *bool    `yaml:"accept-ra"`
}

func (s cloudInitSeed) hostName() string {
	if s.LocalHostname != "" {
		return s.LocalHostname
	}
	return s.Hostname
}

// card is the configuration of the card with that MAC, or nil when the seed says nothing of it.
func (s cloudInitSeed) card(mac string) *cloudInitCard {
	for _, card := range s.Network.Ethernets {
		if card != nil && strings.EqualFold(card.Match.MACAddress, mac) {
			return card
		}
	}
	return nil
}

// cloudInit reads the seed from a machine's guestinfo keys; an absent or broken one is empty, as a
// guest that cannot read its seed boots all the same.
func cloudInit(extraConfig []types.BaseOptionValue) cloudInitSeed {
	var seed cloudInitSeed
	var data, encoding string
	for _, option := range extraConfig {
		text, _ := option.GetOptionValue().Value.(string)
		switch option.GetOptionValue().Key {
		case "guestinfo.metadata":
			data = text
		case "guestinfo.metadata.encoding":
			encoding = text
		}
	}
	decoded, err := decodeGuestinfo(data, encoding)
	if err != nil {
		return seed
	}
	if err := yaml.Unmarshal(decoded, &seed); err != nil {
		return cloudInitSeed{}
	}
	return seed
}

func decodeGuestinfo(data, encoding string) ([]byte, error) {
	raw := []byte(data)
	if encoding == "" {
		return raw, nil
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(encoding, "gz") {
		return raw, nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
