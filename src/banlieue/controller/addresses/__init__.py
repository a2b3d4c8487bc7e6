"""Addresses from pools: claims of Cluster API's IPAM contract, made and ended for machines."""
