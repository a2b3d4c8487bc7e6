"""What runs reconcilers against a real API server; the only importer of kopf and kubernetes."""
