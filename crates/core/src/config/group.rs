//! Groups of knobs: a struct, its defaults, and the text about each knob, written once.

use alloc::string::String;

use super::value::Value;

/// A knob, and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Its name for [`Config::set`](super::Config::set): `rto.floor`.
    pub name: String,
    /// The value that it has.
    pub value: String,
    /// The values that it takes.
    pub shape: &'static str,
    /// The unit of a number; empty if it has none.
    pub unit: &'static str,
    /// Its effect.
    pub meaning: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
}

/// Some knobs that belong together.
pub(super) trait Group {
    /// Adds the knobs to `list`; their names begin with `prefix`.
    fn list(&self, prefix: &str, list: &mut alloc::vec::Vec<Knob>);

    /// The value of the knob of that name, to be set.
    fn value(&mut self, name: &str) -> Option<&mut dyn Value>;
}

/// Defines a group: knobs as `name: Type = default, "unit", "source";`, then groups within it as
/// `name: Type;`. What is said of a knob becomes the field's documentation as well.
macro_rules! group {
    (
        $(#[doc = $about:literal])+
        $group:ident {
            $(
                $(#[doc = $meaning:literal])+
                $knob:ident: $type:ty = $default:expr, $unit:literal, $source:literal;
            )*
        }
        $(
            groups {
                $($(#[doc = $within_about:literal])+ $within:ident: $within_type:ty;)*
            }
        )?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $group {
            $(
                $(#[doc = $meaning])+
                #[doc = concat!("\n\nSource: ", $source, ".")]
                pub $knob: $type,
            )*
            $($($(#[doc = $within_about])+ pub $within: $within_type,)*)?
        }

        impl Default for $group {
            fn default() -> Self {
                $group {
                    $($knob: $default,)*
                    $($($within: Default::default(),)*)?
                }
            }
        }

        impl $crate::config::group::Group for $group {
            fn list(
                &self,
                prefix: &str,
                list: &mut alloc::vec::Vec<$crate::config::group::Knob>,
            ) {
                use $crate::config::value::Value;
                $(list.push($crate::config::group::Knob {
                    name: alloc::format!("{prefix}{}", stringify!($knob)),
                    value: self.$knob.show(),
                    shape: self.$knob.shape(),
                    unit: $unit,
                    meaning: concat!($($meaning),+).trim_ascii_start(),
                    source: $source,
                });)*
                $($(
                    let within = alloc::format!("{prefix}{}.", stringify!($within));
                    self.$within.list(&within, list);
                )*)?
            }

            fn value(&mut self, name: &str) -> Option<&mut dyn $crate::config::value::Value> {
                match name.split_once('.') {
                    None => match name {
                        $(stringify!($knob) => Some(&mut self.$knob),)*
                        _ => None,
                    },
                    Some((group, name)) => match group {
                        $($(stringify!($within) => self.$within.value(name),)*)?
                        _ => {
                            let _ = name;
                            None
                        }
                    },
                }
            }
        }
    };
}

pub(super) use group;
