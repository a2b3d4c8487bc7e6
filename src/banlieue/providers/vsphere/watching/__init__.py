"""What is known of VMs and tasks, and how it stays known without polling."""
