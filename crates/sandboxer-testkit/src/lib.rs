//! Fixtures shared by the tests: fault points, fake clock, extension suite
