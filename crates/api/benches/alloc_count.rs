//! temporary
use std::alloc::System;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
#[global_allocator]
static A: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
use crablet_api::core::*;
fn main(){
 let json: Vec<u8> = serde_json::from_str::<serde_json::Value>(include_str!("pod.json")).unwrap().to_string().into_bytes();
 for _ in 0..2 {
 let r=Region::new(A);
 let p: Box<Pod>=Box::new(serde_json::from_slice(&json).unwrap());
 println!("{:?}", r.change());
 let r=Region::new(A);
 let q=p.clone();
 println!("clone {:?}", r.change());
 drop((p,q));
 let r=Region::new(A);
 let p: Box<k8s_openapi::api::core::v1::Pod>=Box::new(serde_json::from_slice(&json).unwrap());
 println!("theirs {:?}", r.change()); drop(p);
 }
 macro_rules! sz {($($t:ty),*)=>{$(println!("{} {}", stringify!($t), size_of::<$t>());)*}}
 sz!(Pod,PodSpec,PodStatus,crablet_api::meta::ObjectMeta,Container,EnvVar,Probe,VolumeMount,Volume,ContainerStatus,VolumeMountStatus,PodCondition,Toleration,SecurityContext,PodSecurityContext,HTTPGetAction,ContainerPort,Option<RestartPolicy>,Option<crablet_api::meta::Time>,ProjectedVolumeSource,EnvVarSource,crablet_api::OneOf<EnvVarSource>,Option<crablet_api::OneOf<EnvVarSource>>, ResourceRequirements, crablet_api::IntOrString, crablet_api::meta::OwnerReference);
 let n=5000;
 let t=std::time::Instant::now(); for _ in 0..n { let p: Pod=serde_json::from_slice(&json).unwrap(); std::hint::black_box(&p); } println!("ours {:?}", t.elapsed()/n);
 let t=std::time::Instant::now(); for _ in 0..n { let p: k8s_openapi::api::core::v1::Pod=serde_json::from_slice(&json).unwrap(); std::hint::black_box(&p); } println!("theirs {:?}", t.elapsed()/n);
 let t=std::time::Instant::now(); for _ in 0..n { let p: serde::de::IgnoredAny=serde_json::from_slice(&json).unwrap(); std::hint::black_box(&p); } println!("ignored {:?}", t.elapsed()/n);
}
