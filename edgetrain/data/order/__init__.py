"""Which sample comes when: shuffles, minibatches, what is held out."""
