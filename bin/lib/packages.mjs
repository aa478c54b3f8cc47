// Chooses the command that installs what is missing, by operating system and distribution. Pure.

/** @typedef {'loader' | 'software' | 'nvidia' | 'amd' | 'intel' | 'layer'} Need */

/**
 * @typedef {object} System
 * @property {NodeJS.Platform} platform
 * @property {string} distribution ID of /etc/os-release, '' elsewhere
 * @property {string[]} relatives its ID_LIKE
 * @property {boolean} root whether the user is root, who needs no sudo
 */

/**
 * Package names by family of distributions. A need without an entry has no package there.
 * @type {Record<string, { install: string, packages: Partial<Record<Need, string>> }>}
 */
const FAMILIES = {
  debian: {
    install: 'apt-get install -y',
    packages: {
      loader: 'libvulkan1',
      software: 'mesa-vulkan-drivers',
      nvidia: 'nvidia-driver',
      amd: 'mesa-vulkan-drivers',
      intel: 'mesa-vulkan-drivers',
      layer: 'vulkan-validationlayers',
    },
  },
  fedora: {
    install: 'dnf install -y',
    packages: {
      loader: 'vulkan-loader',
      software: 'mesa-vulkan-drivers',
      nvidia: 'akmod-nvidia',
      amd: 'mesa-vulkan-drivers',
      intel: 'mesa-vulkan-drivers',
      layer: 'vulkan-validation-layers',
    },
  },
  arch: {
    install: 'pacman -S --needed',
    packages: {
      loader: 'vulkan-icd-loader',
      software: 'vulkan-swrast',
      nvidia: 'nvidia-utils',
      amd: 'vulkan-radeon',
      intel: 'vulkan-intel',
      layer: 'vulkan-validation-layers',
    },
  },
  suse: {
    install: 'zypper install',
    packages: {
      loader: 'libvulkan1',
      software: 'libvulkan_lvp',
      amd: 'libvulkan_radeon',
      intel: 'libvulkan_intel',
      layer: 'vulkan-validationlayers',
    },
  },
  alpine: {
    install: 'apk add',
    packages: {
      loader: 'vulkan-loader',
      software: 'mesa-vulkan-swrast',
      amd: 'mesa-vulkan-ati',
      intel: 'mesa-vulkan-intel',
      layer: 'vulkan-validation-layers',
    },
  },
  darwin: {
    install: 'brew install',
    packages: {
      loader: 'vulkan-loader',
      software: 'molten-vk',
      nvidia: 'molten-vk',
      amd: 'molten-vk',
      intel: 'molten-vk',
      layer: 'vulkan-validationlayers',
    },
  },
};

/** Distributions that leave ID_LIKE out or go by a version's name. @type {Record<string, string>} */
const ALIASES = {
  ubuntu: 'debian',
  rhel: 'fedora',
  centos: 'fedora',
  'opensuse-tumbleweed': 'suse',
  'opensuse-leap': 'suse',
  opensuse: 'suse',
};

/** @type {Record<Need, string>} */
const WORDS = {
  loader: 'the Vulkan loader',
  software: 'a Vulkan driver (Mesa has one that runs on the CPU)',
  nvidia: "NVIDIA's driver with its Vulkan part",
  amd: "Mesa's Vulkan driver for AMD (RADV)",
  intel: "Mesa's Vulkan driver for Intel (ANV)",
  layer: 'the Khronos validation layer',
};

/**
 * The family of distributions that determines package names; null if unknown.
 * @param {System} system
 */
export function family({ platform, distribution, relatives }) {
  if (platform === 'darwin') return 'darwin';
  if (platform !== 'linux') return null;
  for (const name of [distribution, ...relatives]) {
    const known = ALIASES[name] ?? name;
    if (known !== 'darwin' && Object.hasOwn(FAMILIES, known)) return known;
  }
  return null;
}

/**
 * The command that installs `needs`, or an instruction if there is no package.
 * @param {System} system
 * @param {Need[]} needs
 * @returns {string}
 */
export function installation(system, needs) {
  if (system.platform === 'win32') return [...new Set(needs.map(onWindows))].join('; ');
  const known = family(system);
  if (known === null) return `install ${needs.map((need) => WORDS[need]).join(' and ')} with your package manager`;
  const { install, packages } = FAMILIES[known];
  const sudo = known === 'darwin' || system.root ? '' : 'sudo ';
  const names = [...new Set(needs.flatMap((need) => packages[need] ?? []))];
  const without = needs.filter((need) => packages[need] === undefined);
  // Ubuntu knows which of its driver packages suits the card.
  if (system.distribution === 'ubuntu' && needs.includes('nvidia')) {
    const others = names.filter((name) => name !== packages.nvidia);
    const first = others.length > 0 ? `${sudo}${install} ${others.join(' ')} && ` : '';
    return `${first}${sudo}ubuntu-drivers install`;
  }
  return [
    ...(names.length > 0 ? [`${sudo}${install} ${names.join(' ')}${hint(known, needs)}`] : []),
    ...without.map((need) => `install ${WORDS[need]}`),
  ].join('; ');
}

/**
 * @param {string} known
 * @param {Need[]} needs
 */
function hint(known, needs) {
  if (!needs.includes('nvidia')) return '';
  return { debian: ' (of the section non-free)', fedora: ' (of RPM Fusion)' }[known] ?? '';
}

/** @param {Need} need */
function onWindows(need) {
  switch (need) {
    case 'loader':
      return 'winget install KhronosGroup.VulkanRT';
    case 'layer':
      return 'winget install KhronosGroup.VulkanSDK';
    default:
      return "install your GPU vendor's newest driver, which brings Vulkan";
  }
}

/**
 * The command that installs a shared library which another one needs.
 * @param {System} system
 * @param {string} library such as libX11.so.6
 */
export function libraryInstallation(system, library) {
  const sudo = system.root ? '' : 'sudo ';
  switch (family(system)) {
    case 'debian': {
      const known = DEBIAN_LIBRARIES[library];
      return known ? `${sudo}apt-get install -y ${known}` : `apt-file search ${library}, and install the package it names`;
    }
    case 'fedora':
      return `${sudo}dnf install -y '${library}()(64bit)'`;
    case 'arch':
      return `pacman -F ${library}, and install the package it names`;
    case 'suse':
      return `${sudo}zypper install '${library}()(64bit)'`;
    case 'alpine':
      return `${sudo}apk add so:${library}`;
    default:
      return `install the package that holds ${library}`;
  }
}

/** Libraries that GPU drivers need and bare servers lack. @type {Record<string, string>} */
const DEBIAN_LIBRARIES = {
  'libX11.so.6': 'libx11-6',
  'libX11-xcb.so.1': 'libx11-xcb1',
  'libXext.so.6': 'libxext6',
  'libxcb.so.1': 'libxcb1',
  'libxcb-dri3.so.0': 'libxcb-dri3-0',
  'libxshmfence.so.1': 'libxshmfence1',
  'libwayland-client.so.0': 'libwayland-client0',
  'libdrm.so.2': 'libdrm2',
  'libdrm_amdgpu.so.1': 'libdrm-amdgpu1',
  'libEGL.so.1': 'libegl1',
  'libGL.so.1': 'libgl1',
  'libGLX.so.0': 'libglx0',
  'libGLdispatch.so.0': 'libglvnd0',
  'libz.so.1': 'zlib1g',
  'libzstd.so.1': 'libzstd1',
  'libelf.so.1': 'libelf1',
  'libexpat.so.1': 'libexpat1',
};
