"""Installs banlieue: which objects that takes, and how they get into a cluster and out of it.

The objects are those of `config`, which the distribution carries, and the kinds made from the
models. What they are is decided without a cluster; applying is a second step.
"""
