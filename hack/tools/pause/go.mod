module banlieue.io/hack/tools/pause

go 1.26.0
