//! Every environment variable that sand-boxer reads, each declared once. `docs/environment.md` is generated from here.

macro_rules! env_vars {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {
        /// Names of the variables.
        pub struct EnvVars;

        impl EnvVars {
            $($(#[doc = $doc])* pub const $name: &'static str = stringify!($name);)*

            /// Name and description of each, in order.
            pub const ALL: &'static [(&'static str, &'static str)] = &[$((stringify!($name), concat!($($doc),*)),)*];
        }
    };
}

env_vars! {
    /// Where state is kept; otherwise `$XDG_DATA_HOME/sandboxer`, otherwise `~/.local/share/sandboxer`.
    SANDBOXER_HOME;
    /// URL of a running server; the command line then works through it instead of on the local store.
    SANDBOXER_SERVER;
    /// The API key that the command line sends to the server.
    SANDBOXER_API_KEY;
    /// A further folder of profiles, after the built-in, the user's and the working directory's.
    SANDBOXER_PROFILES;
    /// A further registry folder, after the user's `registry` in the configuration folder: its `extensions/*.yaml` name
    /// extensions in processes of their own.
    SANDBOXER_REGISTRY;
    /// A further folder of price files, after the built-in ones and the user's `prices` in the configuration folder.
    SANDBOXER_PRICES;
    /// Overrides the placement of profiles: the host that must be used.
    SANDBOXER_HOST;
    /// URL of the State Hub that lifecycle events are sent to.
    SANDBOXER_STATE_HUB_URL;
    /// URL of the billing hub that meters and credit movements are sent to.
    SANDBOXER_FIN_HUB_URL;
    /// Private networks that webhooks may reach, as a comma-separated list such as `10.0.0.0/8,127.0.0.1`, or `all`.
    SANDBOXER_WEBHOOK_ALLOW_PRIVATE;
    /// Log filter, such as `info` or `sandboxer_engine=debug`; logs go to stderr.
    SANDBOXER_LOG;
    /// `text` or `json`: the form of log lines.
    SANDBOXER_LOG_FORMAT;
    /// How many native sandboxes a server makes in advance, 0 to 64; 4 unless it is set.
    SANDBOXER_WARM;
    /// How the pretended provider `ext.saas-stub` behaves, such as `latency=200ms,create=429`; see its documentation.
    SANDBOXER_STUB;
    /// Comma-separated kernel features to treat as absent, such as `landlock`; for trying out an older kernel.
    SANDBOXER_PROBE_OFF;
}
