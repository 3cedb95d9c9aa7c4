"""Renders a scene with Cycles on the CPU. Needs bpy and OpenEXR.

Cycles writes one OpenEXR file with the picture, its depth and the index of the object at each
pixel, so that all three are of the same moment and the annotation needs no second render.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bpy
import numpy as np
import OpenEXR
from mathutils import Matrix

from perception.datasets.synthetic.materials import Materials
from perception.datasets.synthetic.mesh import Mesh
from perception.datasets.synthetic.scene import Camera, Item, Lamp, Render, Scene, Weather


@dataclass(frozen=True)
class Quality:
    """How much light is traced: samples for each pixel, bounces, and whether to denoise."""

    samples: int = 4
    bounces: int = 2
    denoise: bool = True


class Renderer:
    """Keeps Blender's one scene; `load` replaces what is in it, `render` takes a picture.

    After `load`, `render` may be called with the same scene moved on (same items in the same
    order): only places, poses and the camera are updated, which is what makes a clip affordable.
    """

    def __init__(self, quality: Quality) -> None:
        self._quality = quality
        self._items: list[Any] = []
        # By identity; the mesh is kept beside its data so that no other can get the same id.
        self._meshes: dict[int, tuple[Mesh, Any]] = {}
        self._materials: Materials | None = None
        self._lamps: list[Any] = []
        self._camera: Any = None

    def load(self, scene: Scene) -> None:
        """Empty Blender and build this scene in it."""
        bpy.ops.wm.read_factory_settings(use_empty=True)
        self._configure()
        self._materials = Materials(scene.weather.wet, scene.weather.night)
        self._meshes = {}
        self._items = []
        for item in (*scene.scenery, *scene.actors):
            thing = bpy.data.objects.new("item", self._data(item.mesh))
            thing.pass_index = getattr(item, "track_id", 0)
            bpy.context.scene.collection.objects.link(thing)
            self._items.append(thing)
        self._lamps = [_add_lamp(lamp) for lamp in scene.lamps]
        self._camera = _add_camera()
        _add_light(scene.weather)

    def render(self, scene: Scene) -> Render:
        """The picture of the loaded scene with things standing where `scene` has them."""
        items: list[Item] = [*scene.scenery, *scene.actors]
        for thing, item in zip(self._items, items, strict=True):
            matrix = Matrix(item.matrix.tolist())
            data = self._data(item.mesh)
            if thing.data != data:
                thing.data = data
            if thing.matrix_world != matrix:
                thing.matrix_world = matrix
        for thing, lamp in zip(self._lamps, scene.lamps, strict=True):
            thing.location = lamp.position
        _place_camera(self._camera, scene.camera)
        with TemporaryDirectory(prefix="waysight-") as folder:
            target = Path(folder) / "frame.exr"
            bpy.context.scene.render.filepath = str(target)
            bpy.ops.render.render(write_still=True)
            return _read(target)

    def _data(self, mesh: Mesh) -> Any:
        assert self._materials is not None, "load() comes first"
        if id(mesh) not in self._meshes:
            self._meshes[id(mesh)] = (mesh, _mesh_data(mesh, self._materials))
        return self._meshes[id(mesh)][1]

    def _configure(self) -> None:
        scene, quality = bpy.context.scene, self._quality
        scene.render.engine = "CYCLES"
        scene.render.use_persistent_data = True
        cycles = scene.cycles
        cycles.device = "CPU"
        cycles.samples = quality.samples
        cycles.seed = 0
        cycles.use_adaptive_sampling = quality.samples > 8
        cycles.adaptive_threshold = 0.05
        cycles.use_denoising = quality.denoise
        if quality.denoise:
            cycles.denoiser = "OPENIMAGEDENOISE"
            cycles.denoising_quality = "FAST"
            cycles.denoising_prefilter = "NONE"
        cycles.max_bounces = quality.bounces
        cycles.diffuse_bounces = 1
        cycles.glossy_bounces = quality.bounces
        cycles.sample_clamp_indirect = 4.0
        cycles.caustics_reflective = cycles.caustics_refractive = False
        layer = scene.view_layers[0]
        layer.use_pass_object_index = layer.use_pass_z = True
        settings = scene.render.image_settings
        settings.media_type = "MULTI_LAYER_IMAGE"
        settings.file_format = "OPEN_EXR_MULTILAYER"
        settings.color_depth = "32"
        settings.exr_codec = "NONE"


def _mesh_data(mesh: Mesh, materials: Materials) -> Any:
    data = bpy.data.meshes.new("mesh")
    data.vertices.add(len(mesh.vertices))
    data.vertices.foreach_set("co", mesh.vertices.astype(np.float32).ravel())
    data.loops.add(len(mesh.corners))
    data.loops.foreach_set("vertex_index", mesh.corners.astype(np.int32))
    data.polygons.add(len(mesh.sizes))
    starts = np.concatenate([[0], np.cumsum(mesh.sizes)[:-1]])
    data.polygons.foreach_set("loop_start", starts.astype(np.int32))
    for surface in mesh.surfaces:
        data.materials.append(materials.get(surface))
    data.polygons.foreach_set("material_index", mesh.material.astype(np.int32))
    data.polygons.foreach_set("use_smooth", mesh.smooth)
    data.update(calc_edges=True)
    data.set_sharp_from_angle(angle=0.7)
    return data


def _add_camera() -> Any:
    thing = bpy.data.objects.new("camera", bpy.data.cameras.new("camera"))
    bpy.context.scene.collection.objects.link(thing)
    bpy.context.scene.camera = thing
    return thing


def _place_camera(thing: Any, camera: Camera) -> None:
    render = bpy.context.scene.render
    render.resolution_x, render.resolution_y = camera.width, camera.height
    render.resolution_percentage = 100
    thing.data.sensor_fit = "HORIZONTAL"
    thing.data.angle = float(np.radians(camera.hfov))
    thing.data.clip_end = 2000.0
    thing.location = (camera.x, camera.y, camera.z)
    thing.rotation_euler = (np.radians(90 + camera.pitch), 0.0, np.radians(camera.yaw))


def _add_lamp(lamp: Lamp) -> Any:
    data = bpy.data.lights.new("lamp", "POINT")
    data.energy, data.color, data.shadow_soft_size = lamp.power, lamp.color, 0.25
    thing = bpy.data.objects.new("lamp", data)
    bpy.context.scene.collection.objects.link(thing)
    return thing


def _add_light(weather: Weather) -> None:
    """A sun, and a sky that goes from horizon to zenith colour with noise for clouds."""
    scene = bpy.context.scene
    if weather.sun_strength > 0:
        data = bpy.data.lights.new("sun", "SUN")
        data.energy, data.angle = weather.sun_strength, float(np.radians(weather.sun_angle))
        warm = max(0.0, 1 - weather.sun_elevation / 35)
        data.color = (1.0, 0.96 - 0.25 * warm, 0.9 - 0.5 * warm)
        thing = bpy.data.objects.new("sun", data)
        tilt, turn = np.radians(90 - weather.sun_elevation), np.radians(weather.sun_azimuth)
        thing.rotation_euler = (tilt, 0.0, turn)
        scene.collection.objects.link(thing)
    world = bpy.data.worlds.new("sky")
    scene.world = world
    if world.node_tree is None:
        world.use_nodes = True
    world.cycles.sampling_method = "MANUAL"
    world.cycles.sample_map_resolution = 64
    nodes, links = world.node_tree.nodes, world.node_tree.links
    background = next(n for n in nodes if n.bl_idname == "ShaderNodeBackground")
    background.inputs["Strength"].default_value = weather.sky_strength
    direction = nodes.new("ShaderNodeTexCoord").outputs["Generated"]
    split = nodes.new("ShaderNodeSeparateXYZ")
    links.new(direction, split.inputs[0])
    ramp = nodes.new("ShaderNodeValToRGB")
    ramp.color_ramp.elements[0].color = (*weather.horizon, 1.0)
    ramp.color_ramp.elements[1].color = (*weather.zenith, 1.0)
    ramp.color_ramp.elements[1].position = 0.55
    links.new(split.outputs[2], ramp.inputs[0])
    # Clouds on a plane overhead: dividing by height makes them smaller towards the horizon.
    height = nodes.new("ShaderNodeMath")
    height.operation = "ADD"
    height.inputs[1].default_value = 0.12
    links.new(split.outputs[2], height.inputs[0])
    plane = nodes.new("ShaderNodeVectorMath")
    plane.operation = "DIVIDE"
    spread = nodes.new("ShaderNodeCombineXYZ")
    for i in range(3):
        links.new(height.outputs[0], spread.inputs[i])
    links.new(direction, plane.inputs[0])
    links.new(spread.outputs[0], plane.inputs[1])
    noise = nodes.new("ShaderNodeTexNoise")
    noise.inputs["Scale"].default_value = 1.1
    noise.inputs["Detail"].default_value = 6.0
    links.new(plane.outputs[0], noise.inputs["Vector"])
    cover = nodes.new("ShaderNodeMapRange")
    cover.inputs["From Min"].default_value = 0.72 - 0.5 * weather.clouds
    cover.inputs["From Max"].default_value = 0.92 - 0.45 * weather.clouds
    cover.inputs["To Max"].default_value = 0.85
    links.new(noise.outputs[0], cover.inputs["Value"])
    bright = 0.9 * max(weather.horizon)
    mix = nodes.new("ShaderNodeMix")
    mix.data_type = "RGBA"
    links.new(cover.outputs["Result"], mix.inputs["Factor"])
    # Sockets 6 and 7 are A and B of the colour mix: names repeat for each data type.
    links.new(ramp.outputs[0], mix.inputs[6])
    mix.inputs[7].default_value = (bright, bright, bright, 1.0)
    links.new(mix.outputs[2], background.inputs["Color"])
    # Only the camera sees single clouds. Light from the sky takes their mean, because tracing
    # noise for each light sample would cost more than the rest of the picture.
    mean = nodes.new("ShaderNodeMix")
    mean.data_type = "RGBA"
    mean.inputs["Factor"].default_value = 0.5 * weather.clouds
    links.new(ramp.outputs[0], mean.inputs[6])
    mean.inputs[7].default_value = (bright, bright, bright, 1.0)
    plain = nodes.new("ShaderNodeBackground")
    plain.inputs["Strength"].default_value = weather.sky_strength
    links.new(mean.outputs[2], plain.inputs["Color"])
    choose = nodes.new("ShaderNodeMixShader")
    links.new(nodes.new("ShaderNodeLightPath").outputs["Is Camera Ray"], choose.inputs[0])
    links.new(plain.outputs[0], choose.inputs[1])
    links.new(background.outputs[0], choose.inputs[2])
    surface = next(n for n in nodes if n.bl_idname == "ShaderNodeOutputWorld").inputs["Surface"]
    links.new(choose.outputs[0], surface)


def _read(path: Path) -> Render:
    with OpenEXR.File(str(path), separate_channels=True) as file:
        channels = {name: c.pixels for part in file.parts for name, c in part.channels.items()}

    def layer(suffix: str) -> np.ndarray:
        return next(p for name, p in channels.items() if name.endswith(suffix))

    color = np.stack([layer(f"Combined.{c}") for c in "RGB"], axis=2)
    color = np.nan_to_num(color, nan=0.0, posinf=1e4, neginf=0.0).astype(np.float32)
    return Render(
        color, layer("Depth.Z").astype(np.float32), np.rint(layer("Index.X")).astype(np.int32)
    )
