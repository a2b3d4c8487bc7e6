"""The operator: runs one provider process for each Provider, and says how it stands."""
