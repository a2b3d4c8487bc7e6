"""First-party backends; each folder is a whole backend and looks like a third party's package."""
