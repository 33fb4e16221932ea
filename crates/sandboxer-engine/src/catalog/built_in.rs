//! The profiles that come with the program.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each file in `profiles/`.
        pub(super) static FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../profiles/", $name)))),*];
    };
}

files![
    "agent-dev.yaml",
    "base.yaml",
    "build.yaml",
    "burst-sandbox.yaml",
    "compose-checkpoint.yaml",
    "compose-e2e.yaml",
    "docker-dev.yaml",
    "e2b-burst.yaml",
    "modal-gpu.yaml",
    "saas-stub.yaml",
    "sandbox-canary.yaml",
    "ssh-dev.yaml",
    "vm-haskell-build.yaml",
];
