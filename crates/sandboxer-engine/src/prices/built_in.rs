//! The price files that come with the program.

/// Of the names of these files.
pub(super) const PREFIX: &str = "built-in:";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each file in `registry/prices/`.
        pub(super) static FILES: &[(&str, &str)] = &[$((
            concat!("built-in:", $name),
            include_str!(concat!("../../../../registry/prices/", $name)),
        )),*];
    };
}

files![
    "ext.agentcore.yaml",
    "ext.blaxel.yaml",
    "ext.cloudflare.yaml",
    "ext.compose-ssh.yaml",
    "ext.daytona-self.yaml",
    "ext.daytona.yaml",
    "ext.docker.yaml",
    "ext.e2b.yaml",
    "ext.k8s.yaml",
    "ext.modal.yaml",
    "ext.native.yaml",
    "ext.northflank.yaml",
    "ext.opensandbox.yaml",
    "ext.openshell.yaml",
    "ext.runloop.yaml",
    "ext.saas-stub.yaml",
    "ext.sprites.yaml",
    "ext.ssh.yaml",
    "ext.vercel.yaml",
    "ext.vm-packer.yaml",
];
