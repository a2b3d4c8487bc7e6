"""Makes CustomResourceDefinitions and the API reference from the models."""
