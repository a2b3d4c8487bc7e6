"""A backend with no hypervisor behind it: for demos, for tests, and as the model of the seam."""
