//! One behavioural suite for every extension; its cases are chosen by the declared capability.
