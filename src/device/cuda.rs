//! CUDA kernels in Vulkan command buffers: the functions of whichever extension for PTX the driver has.

use std::ffi::{CStr, c_void};

use ash::vk::{self, Handle};
use ash::{nv, nvx};

/// The extensions that take PTX. They differ in names, and in how a launch gets its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// `VK_NV_cuda_kernel_launch`
    KernelLaunch,
    /// `VK_NVX_binary_import`: has no specification; used as its header declares it.
    BinaryImport,
}

impl Extension {
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::KernelLaunch => nv::cuda_kernel_launch::NAME,
            Self::BinaryImport => nvx::binary_import::NAME,
        }
    }

    pub fn text(self) -> &'static str {
        self.name().to_str().unwrap_or_default()
    }

    /// Names of the functions that we call.
    const fn functions(self) -> [&'static CStr; 5] {
        match self {
            Self::KernelLaunch => [
                c"vkCreateCudaModuleNV",
                c"vkDestroyCudaModuleNV",
                c"vkCreateCudaFunctionNV",
                c"vkDestroyCudaFunctionNV",
                c"vkCmdCudaLaunchKernelNV",
            ],
            Self::BinaryImport => [
                c"vkCreateCuModuleNVX",
                c"vkDestroyCuModuleNVX",
                c"vkCreateCuFunctionNVX",
                c"vkDestroyCuFunctionNVX",
                c"vkCmdCuLaunchKernelNVX",
            ],
        }
    }
}

/// The feature structure that enables `VK_NV_cuda_kernel_launch`.
pub fn features() -> vk::PhysicalDeviceCudaKernelLaunchFeaturesNV<'static> {
    vk::PhysicalDeviceCudaKernelLaunchFeaturesNV::default().cuda_kernel_launch_features(true)
}

/// A driver's module, of either extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module(u64);

/// A kernel of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Function(u64);

impl Function {
    /// As a handle of either extension.
    pub fn handle<H: Handle>(self) -> H {
        H::from_raw(self.0)
    }
}

/// The driver's functions. Only the encoder calls `vkCmd*`.
pub enum Calls {
    KernelLaunch(nv::cuda_kernel_launch::DeviceFn),
    BinaryImport(nvx::binary_import::DeviceFn),
}

/// The functions of the extension that a device was created with.
pub struct Cuda {
    pub extension: Extension,
    device: vk::Device,
    pub calls: Calls,
}

impl Cuda {
    /// None if the driver lists the extension but lacks one of its functions.
    pub fn load(
        instance: &ash::Instance,
        device: vk::Device,
        extension: Extension,
    ) -> Option<Self> {
        let find = |name: &CStr| {
            // SAFETY: the device is live.
            let found = unsafe { instance.get_device_proc_addr(device, name.as_ptr()) };
            found.map_or(std::ptr::null(), |function| function as *const c_void)
        };
        if extension
            .functions()
            .iter()
            .any(|name| find(name).is_null())
        {
            return None;
        }
        let calls = match extension {
            Extension::KernelLaunch => {
                Calls::KernelLaunch(nv::cuda_kernel_launch::DeviceFn::load(find))
            }
            Extension::BinaryImport => {
                Calls::BinaryImport(nvx::binary_import::DeviceFn::load(find))
            }
        };
        Some(Self {
            extension,
            device,
            calls,
        })
    }

    /// The name of the call that makes modules.
    pub const fn module_call(&self) -> &'static str {
        match self.extension {
            Extension::KernelLaunch => "vkCreateCudaModuleNV",
            Extension::BinaryImport => "vkCreateCuModuleNVX",
        }
    }

    /// The name of the call that makes functions.
    pub const fn function_call(&self) -> &'static str {
        match self.extension {
            Extension::KernelLaunch => "vkCreateCudaFunctionNV",
            Extension::BinaryImport => "vkCreateCuFunctionNVX",
        }
    }

    /// Makes a module from PTX text that ends with a NUL, or from a cubin.
    pub fn create_module(&self, data: &[u8]) -> Result<Module, vk::Result> {
        let none = std::ptr::null();
        match &self.calls {
            Calls::KernelLaunch(calls) => {
                let info = vk::CudaModuleCreateInfoNV::default().data(data);
                let mut module = vk::CudaModuleNV::null();
                // SAFETY: the device is live, and the data are, here and below, for the time of the call.
                unsafe { (calls.create_cuda_module_nv)(self.device, &info, none, &mut module) }
                    .result()?;
                Ok(Module(module.as_raw()))
            }
            Calls::BinaryImport(calls) => {
                let info = vk::CuModuleCreateInfoNVX::default().data(data);
                let mut module = vk::CuModuleNVX::null();
                // SAFETY: as above.
                unsafe { (calls.create_cu_module_nvx)(self.device, &info, none, &mut module) }
                    .result()?;
                Ok(Module(module.as_raw()))
            }
        }
    }

    pub fn create_function(&self, module: Module, name: &CStr) -> Result<Function, vk::Result> {
        let none = std::ptr::null();
        match &self.calls {
            Calls::KernelLaunch(calls) => {
                let info = vk::CudaFunctionCreateInfoNV::default()
                    .module(vk::CudaModuleNV::from_raw(module.0))
                    .name(name);
                let mut function = vk::CudaFunctionNV::null();
                // SAFETY: device and module are live, here and below.
                unsafe { (calls.create_cuda_function_nv)(self.device, &info, none, &mut function) }
                    .result()?;
                Ok(Function(function.as_raw()))
            }
            Calls::BinaryImport(calls) => {
                let info = vk::CuFunctionCreateInfoNVX::default()
                    .module(vk::CuModuleNVX::from_raw(module.0))
                    .name(name);
                let mut function = vk::CuFunctionNVX::null();
                // SAFETY: as above.
                unsafe { (calls.create_cu_function_nvx)(self.device, &info, none, &mut function) }
                    .result()?;
                Ok(Function(function.as_raw()))
            }
        }
    }

    /// # Safety
    /// The module must belong to this device and have no functions left. Do not use it again.
    pub unsafe fn destroy_module(&self, module: Module) {
        let none = std::ptr::null();
        // SAFETY: the caller's promise.
        unsafe {
            match &self.calls {
                Calls::KernelLaunch(calls) => {
                    let module = vk::CudaModuleNV::from_raw(module.0);
                    (calls.destroy_cuda_module_nv)(self.device, module, none);
                }
                Calls::BinaryImport(calls) => {
                    let module = vk::CuModuleNVX::from_raw(module.0);
                    (calls.destroy_cu_module_nvx)(self.device, module, none);
                }
            }
        }
    }

    /// # Safety
    /// The function must belong to this device, which must have finished with it. Do not use it again.
    pub unsafe fn destroy_function(&self, function: Function) {
        let none = std::ptr::null();
        // SAFETY: the caller's promise.
        unsafe {
            match &self.calls {
                Calls::KernelLaunch(calls) => {
                    (calls.destroy_cuda_function_nv)(self.device, function.handle(), none);
                }
                Calls::BinaryImport(calls) => {
                    (calls.destroy_cu_function_nvx)(self.device, function.handle(), none);
                }
            }
        }
    }
}
