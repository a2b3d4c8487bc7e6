"""What a vCenter offers: places, failure domains, templates, rights."""
