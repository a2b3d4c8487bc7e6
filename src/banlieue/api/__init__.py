"""The Kubernetes kinds of banlieue as pure data: models, names, reasons and the CRD generator."""
