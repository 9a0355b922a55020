//! The processor's cycle counter, where it can be trusted. It must tick at one rate in every state
//! of the processor ("invariant TSC"), and read the same on every processor.

#![allow(unsafe_code, reason = "the counter is read by an instruction that has no safe wrapper")]

/// Linux lists the clocks here that it could take its own time from, separated by blanks. The
/// counter is missing if Linux found that it drifts, stops or differs between processors, or if an
/// administrator ruled it out.
const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// True if the processor promises that its counter ticks at one rate, and Linux believes it. The
/// clock that Linux uses does not matter: in a virtual machine that is often the hypervisor's
/// (`kvm-clock`), which reads the same counter.
pub(super) fn trusted() -> bool {
    let listed = std::fs::read_to_string(AVAILABLE).is_ok_and(|clocks| names_counter(&clocks));
    listed && is_invariant(cpuid)
}

fn names_counter(clocks: &str) -> bool {
    clocks.split_ascii_whitespace().any(|clock| clock == "tsc")
}

/// Two words of a CPUID leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    eax: u32,
    edx: u32,
}

/// True if CPUID declares that the counter ticks at one rate: bit 8 of EDX in leaf 0x8000_0007, if
/// leaf 0x8000_0000 says that this leaf exists ("Invariant TSC", Intel's Software Developer's
/// Manual, volume 3, "Time-Stamp Counter").
fn is_invariant(cpuid: impl Fn(u32) -> Leaf) -> bool {
    const LARGEST: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    cpuid(LARGEST).eax >= POWER && cpuid(POWER).edx & (1 << 8) != 0
}

#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32) -> Leaf {
    #[allow(unused_unsafe, reason = "safe to call on newer toolchains")]
    // SAFETY: CPUID is part of the baseline of x86-64.
    let said = unsafe { core::arch::x86_64::__cpuid(leaf) };
    Leaf { eax: said.eax, edx: said.edx }
}

/// Reports that no leaf exists: no counter is known on this architecture.
#[cfg(not(target_arch = "x86_64"))]
fn cpuid(_leaf: u32) -> Leaf {
    Leaf::default()
}

/// Reads the counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn read() -> u64 {
    // SAFETY: RDTSC is part of the baseline of x86-64, and user programs may execute it unless the
    // system forbids it, which Linux does only for those that ask (PR_SET_TSC).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Never called, since [`trusted`] returns false.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn read() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_linux_has_ruled_out_is_not_trusted() {
        for clocks in ["tsc hpet acpi_pm \n", "kvm-clock tsc \n", "tsc\n"] {
            assert!(names_counter(clocks), "{clocks}");
        }
        for clocks in ["hpet acpi_pm \n", "kvm-clock \n", "hyperv_clocksource_tsc_page \n", ""] {
            assert!(!names_counter(clocks), "{clocks}");
        }
    }

    #[test]
    fn a_counter_is_trusted_that_the_processor_calls_invariant() {
        const INVARIANT: u32 = 1 << 8;
        // The largest leaf, and EDX of leaf 0x8000_0007.
        let says = |largest, power| {
            is_invariant(|leaf| match leaf {
                0x8000_0000 => Leaf { eax: largest, edx: u32::MAX },
                0x8000_0007 => Leaf { eax: u32::MAX, edx: power },
                _ => panic!("leaf {leaf:#x} says nothing about it"),
            })
        };
        assert!(says(0x8000_0007, INVARIANT) && says(0x8000_0028, u32::MAX));
        assert!(!says(0x8000_0007, 0) && !says(0x8000_0007, !INVARIANT));
        // Beyond the largest leaf a processor returns arbitrary values.
        assert!(!says(0x8000_0006, INVARIANT) && !says(0, INVARIANT));
    }
}
