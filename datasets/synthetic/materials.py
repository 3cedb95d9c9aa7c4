"""Blender materials for the surface kinds used by the meshes. Needs bpy."""

from __future__ import annotations

from typing import Any

import bpy

from perception.datasets.synthetic.mesh import Surface

# kind -> (roughness, metallic, coat): measured by eye against photographs of the real thing.
_PLAIN: dict[str, tuple[float, float, float]] = {
    "paint": (0.3, 0.25, 0.7),
    "glass": (0.04, 0.0, 0.0),
    "window": (0.06, 0.0, 0.0),
    "rubber": (0.8, 0.0, 0.0),
    "plastic": (0.45, 0.0, 0.0),
    "metal": (0.32, 1.0, 0.0),
    "skin": (0.55, 0.0, 0.0),
    "hair": (0.7, 0.0, 0.0),
    "leaf": (0.65, 0.0, 0.0),
}
# kind -> (scale of the coarse noise in 1/m, of the fine noise, contrast, roughness)
_ROUGH: dict[str, tuple[float, float, float, float]] = {
    "asphalt": (0.35, 38.0, 0.5, 0.85),
    "grass": (0.25, 9.0, 0.9, 0.95),
    "dirt": (0.8, 14.0, 0.7, 0.95),
    "concrete": (0.6, 18.0, 0.4, 0.85),
    "plaster": (0.3, 6.0, 0.3, 0.9),
    "bark": (3.0, 30.0, 0.9, 0.95),
    "wood": (2.0, 24.0, 0.5, 0.7),
    "cloth": (2.0, 28.0, 0.3, 0.95),
}
_BRICK: dict[str, tuple[float, float, float]] = {  # kind -> brick width, height, mortar, metres
    "brick": (0.25, 0.09, 0.012),
    "paving": (0.6, 0.4, 0.012),
    "tiles": (0.3, 0.35, 0.03),
}


class Materials:
    """Makes each material once. `wet` 0..1 makes roads shine, `night` lights the lamps."""

    def __init__(self, wet: float, night: bool) -> None:
        self._made: dict[Surface, Any] = {}
        self._wet = wet
        self._night = night

    def get(self, surface: Surface) -> Any:
        """The bpy material of a surface."""
        if surface not in self._made:
            self._made[surface] = self._make(surface)
        return self._made[surface]

    def _make(self, surface: Surface) -> Any:
        material = bpy.data.materials.new(surface.kind)
        if material.node_tree is None:
            material.use_nodes = True
        tree = material.node_tree
        shader = next(n for n in tree.nodes if n.bl_idname == "ShaderNodeBsdfPrincipled")
        shader.inputs["Base Color"].default_value = (*surface.color, 1.0)
        kind = surface.kind
        if kind in _PLAIN:
            roughness, metallic, coat = _PLAIN[kind]
            shader.inputs["Roughness"].default_value = roughness
            shader.inputs["Metallic"].default_value = metallic
            shader.inputs["Coat Weight"].default_value = coat
        elif kind in ("headlamp", "taillamp", "lamp"):
            day = {"headlamp": 0.25, "taillamp": 0.25, "lamp": 1.0}[kind]
            night = {"headlamp": 30.0, "taillamp": 5.0, "lamp": 20.0}[kind]
            shader.inputs["Roughness"].default_value = 0.12
            shader.inputs["Emission Color"].default_value = (*surface.color, 1.0)
            shader.inputs["Emission Strength"].default_value = night if self._night else day
        elif kind in _BRICK:
            self._brick(tree, shader, surface)
        elif kind == "marking":
            self._noisy(tree, shader, surface, (1.2, 22.0, 0.55, 0.7))
        else:
            self._noisy(tree, shader, surface, _ROUGH[kind])
        return material

    def _noisy(
        self, tree: Any, shader: Any, surface: Surface, look: tuple[float, float, float, float]
    ) -> None:
        """Colour that varies at two scales; a road also gets wet patches."""
        coarse_scale, fine_scale, contrast, roughness = look
        nodes, links = tree.nodes, tree.links
        where = nodes.new("ShaderNodeTexCoord").outputs["Object"]
        coarse, fine = nodes.new("ShaderNodeTexNoise"), nodes.new("ShaderNodeTexNoise")
        for node, scale, detail in ((coarse, coarse_scale, 4.0), (fine, fine_scale, 2.0)):
            node.inputs["Scale"].default_value = scale
            node.inputs["Detail"].default_value = detail
            links.new(where, node.inputs["Vector"])
        total = nodes.new("ShaderNodeMath")
        total.operation = "ADD"
        links.new(coarse.outputs[0], total.inputs[0])
        links.new(fine.outputs[0], total.inputs[1])
        ramp = nodes.new("ShaderNodeValToRGB")
        low, high = 1 - contrast, 1 + contrast
        ramp.color_ramp.elements[0].position = 0.32
        ramp.color_ramp.elements[1].position = 0.68
        ramp.color_ramp.elements[0].color = (*(c * low for c in surface.color), 1.0)
        warm = (1.15, 1.0, 0.7) if surface.kind == "grass" else (1.0, 1.0, 1.0)
        lit = tuple(min(1.0, c * high * w) for c, w in zip(surface.color, warm, strict=True))
        ramp.color_ramp.elements[1].color = (*lit, 1.0)
        half = nodes.new("ShaderNodeMath")
        half.operation = "MULTIPLY"
        half.inputs[1].default_value = 0.5
        links.new(total.outputs[0], half.inputs[0])
        links.new(half.outputs[0], ramp.inputs[0])
        links.new(ramp.outputs[0], shader.inputs["Base Color"])
        shader.inputs["Roughness"].default_value = roughness
        if self._wet > 0 and surface.kind in ("asphalt", "paving", "marking"):
            wet = nodes.new("ShaderNodeMapRange")
            wet.inputs["From Min"].default_value = 0.62 - 0.3 * self._wet
            wet.inputs["From Max"].default_value = 0.72 - 0.3 * self._wet
            wet.inputs["To Min"].default_value = roughness - 0.35 * self._wet
            wet.inputs["To Max"].default_value = 0.08
            links.new(coarse.outputs[0], wet.inputs["Value"])
            links.new(wet.outputs["Result"], shader.inputs["Roughness"])

    def _brick(self, tree: Any, shader: Any, surface: Surface) -> None:
        """Courses of bricks on walls (along x + y, and z) or slabs on the ground (x, y)."""
        width, height, mortar = _BRICK[surface.kind]
        nodes, links = tree.nodes, tree.links
        where = nodes.new("ShaderNodeTexCoord").outputs["Object"]
        brick = nodes.new("ShaderNodeTexBrick")
        if surface.kind == "paving":
            links.new(where, brick.inputs["Vector"])
        else:
            split, join = nodes.new("ShaderNodeSeparateXYZ"), nodes.new("ShaderNodeCombineXYZ")
            along = nodes.new("ShaderNodeMath")
            along.operation = "ADD"
            links.new(where, split.inputs[0])
            links.new(split.outputs[0], along.inputs[0])
            links.new(split.outputs[1], along.inputs[1])
            links.new(along.outputs[0], join.inputs[0])
            links.new(split.outputs[2], join.inputs[1])
            links.new(join.outputs[0], brick.inputs["Vector"])
        brick.inputs["Scale"].default_value = 1.0
        brick.inputs["Brick Width"].default_value = width
        brick.inputs["Row Height"].default_value = height
        brick.inputs["Mortar Size"].default_value = mortar
        brick.inputs["Color1"].default_value = (*surface.color, 1.0)
        brick.inputs["Color2"].default_value = (*(c * 0.65 for c in surface.color), 1.0)
        gray = sum(surface.color) / 3
        brick.inputs["Mortar"].default_value = (gray * 0.8, gray * 0.8, gray * 0.75, 1.0)
        links.new(brick.outputs["Color"], shader.inputs["Base Color"])
        shader.inputs["Roughness"].default_value = 0.88
