# Shared by the scripts beside it: targets, tools, and how cargo is called for a target.
#
# Everything that is installed is named when it is installed: Debian packages (as root), Rust targets (with rustup), and
# zig with cargo-zigbuild from PyPI into a folder of their own below the build folder. zig is linker, C compiler and C
# library in one, for every target, so no cross compiler is needed.

# The oldest C library that the dynamically linked builds run on: that of Debian 11.
readonly GLIBC_MIN=2.31
readonly ZIG_VERSION=0.17.1
readonly ZIGBUILD_VERSION=0.24.1
readonly CARGO_DEB_VERSION=3.8.0
# The Rust that the manifest asks for.
readonly RUST_MIN=1.90
# Where the kernel is told which emulator runs which programs.
readonly BINFMT=/proc/sys/fs/binfmt_misc

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$ROOT/target}"
readonly ROOT CROSS_DIR="$CARGO_TARGET_DIR/cross"
readonly TOOLS="$CROSS_DIR/tools-$ZIG_VERSION-$ZIGBUILD_VERSION"

say() { printf '\n== %s\n' "$*"; }
die() {
    printf '%s: %s\n' "$0" "$*" >&2
    exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# The triple that a name stands for.
target_of() {
    case "$1" in
    arm64) echo aarch64-unknown-linux-gnu ;;
    armhf) echo armv7-unknown-linux-gnueabihf ;;
    armv6) echo arm-unknown-linux-gnueabihf ;;
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64-static) echo aarch64-unknown-linux-musl ;;
    armhf-static) echo armv7-unknown-linux-musleabihf ;;
    armv6-static) echo arm-unknown-linux-musleabihf ;;
    amd64-static) echo x86_64-unknown-linux-musl ;;
    aarch64-unknown-linux-gnu | armv7-unknown-linux-gnueabihf | arm-unknown-linux-gnueabihf | x86_64-unknown-linux-gnu | \
        aarch64-unknown-linux-musl | armv7-unknown-linux-musleabihf | arm-unknown-linux-musleabihf | \
        x86_64-unknown-linux-musl) echo "$1" ;;
    *) die "unknown target \"$1\"; known are arm64, armhf, armv6, amd64, each of them with -static, and their triples" ;;
    esac
}

# What zigbuild is told: the triple, with the C library's version where there is one.
pinned() {
    case "$1" in
    *-gnu*) echo "$1.$GLIBC_MIN" ;;
    *) echo "$1" ;;
    esac
}

# The emulator that runs programs of a target; nothing for this machine's own.
emulator_of() {
    case "$1" in
    aarch64-*) echo qemu-aarch64-static ;;
    arm*) echo qemu-arm-static ;;
    esac
}

# The name under which the kernel knows that emulator.
binfmt_of() {
    case "$1" in
    aarch64-*) echo qemu-aarch64 ;;
    arm*) echo qemu-arm ;;
    esac
}

# Has the kernel hand programs of a target to their emulator.
need_emulator() {
    local target="$1" name
    name="$(binfmt_of "$target")"
    if [ -z "$name" ]; then return; fi
    if ! has "$(emulator_of "$target")" || ! has update-binfmts; then install_packages qemu-user-static binfmt-support; fi
    if [ ! -e "$BINFMT/register" ]; then
        say "mounting $BINFMT"
        mount -t binfmt_misc binfmt_misc "$BINFMT"
    fi
    if [ ! -e "$BINFMT/$name" ]; then update-binfmts --enable "$name"; fi
    [ -e "$BINFMT/$name" ] || die "the kernel does not hand programs for $target to $(emulator_of "$target")"
}

# Emulated processor: the oldest that the target is for, so that a newer instruction is caught.
emulated_cpu_of() {
    case "$1" in
    aarch64-*) echo cortex-a53 ;;
    armv7-*) echo cortex-a7 ;;
    arm-*) echo arm1176 ;;
    esac
}

# Installs Debian packages, as root; elsewhere says what is missing.
install_packages() {
    if ! has apt-get || [ "$(id -u)" -ne 0 ]; then
        die "these packages are missing, and installing them needs apt-get and root: $*"
    fi
    say "installing packages: $*"
    DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" </dev/null
}

# `at_least 1.90 1.95.0`: the second version is not older.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1)" = "$1" ]; }

rust_is_new_enough() {
    has cargo && has rustc && at_least "$RUST_MIN" "$(rustc --version | cut -d' ' -f2)"
}

# Cargo and rustc: what is there, else Debian's newest, with the sources of its standard library.
need_rust() {
    rust_is_new_enough && return
    has apt-get || die "Rust $RUST_MIN or newer is needed; https://rustup.rs installs it"
    if [ "$(id -u)" -eq 0 ]; then DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null; fi
    local candidate
    candidate="$(apt-cache policy rustc-web 2>/dev/null | sed -n 's/ *Candidate: //p')"
    if [ -n "$candidate" ] && at_least "$RUST_MIN" "$candidate"; then
        install_packages rustc-web cargo-web rust-web-src
    else
        install_packages rustup
        rustup default stable
    fi
    hash -r
    rust_is_new_enough || die "Rust $RUST_MIN or newer is needed and could not be installed; see https://rustup.rs"
}

# A C compiler for build scripts of this machine, Python for zig, certificates for cargo.
need_host_tools() {
    local missing=()
    has cc || missing+=(gcc libc6-dev)
    has python3 || missing+=(python3)
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
    if [ "${#missing[@]}" -gt 0 ]; then install_packages "${missing[@]}"; fi
}

need_zig() {
    if [ ! -x "$TOOLS/bin/cargo-zigbuild" ]; then
        say "installing ziglang $ZIG_VERSION and cargo-zigbuild $ZIGBUILD_VERSION into $TOOLS"
        rm -rf "$TOOLS"
        python3 -m venv "$TOOLS"
        "$TOOLS/bin/pip" install -q --disable-pip-version-check --no-cache-dir \
            "ziglang==$ZIG_VERSION" "cargo-zigbuild==$ZIGBUILD_VERSION"
    fi
    export PATH="$TOOLS/bin:$PATH"
}

# Where the sources of the standard library lie, if they do.
std_sources() {
    local sources
    sources="$(rustc --print sysroot)/lib/rustlib/src/rust/library"
    if [ -d "$sources" ]; then echo "$sources"; fi
}

has_std() { compgen -G "$(rustc --print sysroot)/lib/rustlib/$1/lib/libstd-*" >/dev/null; }

# Sets STD_ARGS to nothing when the target's standard library is there or can be had, else to what builds it. On 32-bit
# musl it is always built, because the ready-made one has a clock that ends in 2038.
need_std() {
    local target="$1"
    STD_ARGS=()
    unset RUSTC_BOOTSTRAP RUST_LIBC_UNSTABLE_MUSL_V1_2_3
    if [[ "$target" != arm*musl* ]]; then
        has_std "$target" && return
        if has rustup; then
            say "installing the standard library for $target"
            if rustup target add "$target"; then return; fi
            echo "$0: it cannot be had from here; it is built instead"
        fi
    fi
    if [ -z "$(std_sources)" ]; then
        if has rustup; then
            say "installing the sources of the standard library"
            rustup component add rust-src
        else
            install_packages rust-web-src
        fi
    fi
    [ -n "$(std_sources)" ] || die "the sources of the standard library of $(rustc --version) are missing"
    export RUSTC_BOOTSTRAP=1
    if [[ "$target" == arm*musl* ]]; then export RUST_LIBC_UNSTABLE_MUSL_V1_2_3=1; fi
    STD_ARGS=(-Zbuild-std=std,panic_abort)
}

# `cross_cargo COMMAND TARGET ARGUMENT...`: cargo with zig as linker and C compiler.
cross_cargo() {
    local command="$1" target="$2"
    shift 2
    cargo-zigbuild "$command" --target "$(pinned "$target")" "${STD_ARGS[@]}" "$@"
}

prepare() {
    need_host_tools
    need_rust
    need_zig
    mkdir -p "$CROSS_DIR"
}

# Where the program for a target lies, once it is built.
program_of() { echo "$CARGO_TARGET_DIR/$1/dist/tidegate"; }

# The program as it ships, for one target.
build_program() {
    local target="$1"
    need_std "$target"
    say "building tidegate for $target"
    local last=()
    # rustc's own start-up objects come with its ready-made library only; zig has others.
    if [ "${#STD_ARGS[@]}" -gt 0 ] && [[ "$target" == *musl* ]]; then last=(-- -Clink-self-contained=no); fi
    (cd "$ROOT" && cross_cargo rustc "$target" --locked --profile dist --bin tidegate "${last[@]}")
}
