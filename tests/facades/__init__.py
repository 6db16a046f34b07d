"""The facades, answered from memory: what each method gives, refuses and adds."""
