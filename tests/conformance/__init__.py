"""One test, or a few, for each rule of the contract; `rule` says which, the name says it."""
