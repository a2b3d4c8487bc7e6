"""What a guest reads at its first boot: checked, and completed with what is ours."""
