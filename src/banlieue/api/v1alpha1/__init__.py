"""Group ``banlieue.io/v1alpha1``: what users and platform admins write."""
