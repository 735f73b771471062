"""The networks of zoo.py: name: function that makes (module, calls of batch 2 and 1). Weights are random."""

import copy

import torch
from torch import nn
from torch.utils import _pytree as pytree

NETWORKS = {}

TIMM = """
aimv2_large_patch14_224 bat_resnext26ts beit_base_patch16_224 botnet26t_256 caformer_s18 cait_xxs24_224
coat_lite_tiny coat_tiny coatnet_nano_cc_224 coatnet_pico_rw_224 coatnet_rmlp_nano_rw_224 coatnext_nano_rw_224
convformer_s18 convit_tiny convmixer_1024_20_ks9_p14 convnext_atto convnext_atto_ols convnext_atto_rms
convnextv2_atto cpubone_nano crossvit_9_dagger_240 crossvit_tiny_240 cs3darknet_focus_s cs3sedarknet_l csatv2
cspnext_tiny cspresnet50 darknetaa53 davit_base_fl davit_tiny deepseek_vit_412m deit_tiny_distilled_patch16_224
densenet121 densenetblur121d dla46_c dla60_res2next dm_nfnet_f0 dpn48b eca_botnext26ts_256 ecaresnet26t
edgenext_small_rw edgenext_xx_small efficientformer_l1 efficientformerv2_s0 efficientnet_b0 efficientnet_b0_g16_evos
efficientnet_b0_gn efficientnet_blur_b0 efficientnet_cc_b0_4e efficientnet_lite0 efficientnet_x_b3
efficientnetv2_rw_t efficientvim_m1 efficientvit_b0 efficientvit_l1 efficientvit_m0 ese_vovnet19b_slim
ese_vovnet39b_evos eva02_tiny_patch14_224 fasternet_t0 fastvit_mci0 fastvit_t8 fbnetc_100 fbnetv3_b
focalnet_tiny_lrf focalnet_tiny_srf gcresnext26ts gcvit_xxtiny gemma4_vit_167m gernet_s ghostnet_050 ghostnetv2_100
ghostnetv3_050 gmixer_12_224 gmlp_ti16_224 halonet26t haloregnetz_b hardcorenas_a hgnet_tiny hgnetv2_b0
hiera_small_abswin_256 hiera_tiny_224 hieradet_small hrnet_w18_small iformer_t inception_next_atto
inception_resnet_v2 inception_v3 inception_v4 lambda_resnet26rpt_256 lambda_resnet26t lamhalobotnet50ts_256
lcnet_035 lcnetv2_small legacy_seresnet18 legacy_seresnext26_32x4d legacy_xception levit_128s levit_conv_128s
lowformer_b0 mambaout_femto maxvit_pico_rw_256 maxvit_rmlp_pico_rw_256 maxvit_tiny_tf_224 mixer_s32_224 mixnet_s
mnasnet_small mobilenet_edgetpu_100 mobilenetv2_035 mobilenetv3_small_050 mobilenetv4_conv_blur_medium
mobilenetv4_conv_small_035 mobilenetv4_hybrid_medium_075 mobilenetv5_300m mobileone_s0 mobilevit_xxs mobilevitv2_050
mvitv2_small_cls mvitv2_tiny naflexvit_base_patch16_gap naflexvit_base_patch16_map nasnetalarge nest_tiny
nest_tiny_jx nextvit_small nf_regnet_b0 nf_resnet26 nfnet_l0 pit_ti_224 pit_ti_distilled_224 pnasnet5large
poolformer_s12 poolformerv2_s12 pvt_v2_b0 pvt_v2_b2_li qwen3_vit_88m rdnet_tiny regnetv_040 regnetx_002 regnety_002
regnety_040_sgn regnetz_005 regnetz_b16 regnetz_b16_evos repghostnet_050 repvgg_a0 repvit_m0_9 res2net50_26w_4s
res2next50 resmlp_12_224 resnest14d resnet10t resnet18d resnet50_gn resnetaa34d resnetblur18 resnetv2_18
resnetv2_50d_evos resnetv2_50d_frn resnetv2_50x1_bit resnext26ts rexnet_100 rexnetr_100 sam2_hiera_tiny
samvit_base_patch16_224 sehalonet33ts selecsls42b sequencer2d_s seresnet18 shvit_s1 skresnet18 skresnext50_32x4d
starnet_s050 swiftformer_xs swin_s3_tiny_224 swin_tiny_patch4_window7_224 swinv2_cr_tiny_ns_224
swinv2_tiny_window8_256 test_convnext3 tf_mobilenetv3_small_minimal_100 tiny_vit_5m_224 tinynet_e
tnt_s_legacy_patch16_224 tnt_s_patch16_224 tresnet_m tresnet_v2_l twins_pcpvt_small twins_svt_small vgg11_bn
visformer_tiny vit_base_mci_224 vit_base_patch16_rope_mixed_224 vit_base_patch16_siglip_224
vit_dlittle_patch16_reg1_gap_256 vit_pwee_patch16_reg1_gap_256 vit_relpos_small_patch16_224 vit_small_patch14_dinov2
vit_small_patch16_dinov3 vit_small_patch16_rope_224 vit_srelpos_small_patch16_224 vit_tiny_patch16_224
vit_tiny_r_s16_p8_224 vitamin_small_224 volo_d1_224 vovnet39a xception41 xception41p xcit_nano_12_p16_224
""".split()


def tensors(value):
    """The tensors of nested results, in order."""
    value = value.to_tuple() if hasattr(value, "to_tuple") else value
    return [one for one in pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


class Called(nn.Module):
    """A module, or a method of it, that is given its inputs by name and returns a flat tuple."""

    def __init__(self, module, names=None, method=None, pick=None, **options):
        super().__init__()
        self.module, self.names, self.method, self.pick, self.options = module, names, method, pick, options

    def forward(self, *inputs):
        run = getattr(self.module, self.method) if self.method else self.module
        named = {} if self.names is None else dict(zip(self.names, inputs))
        made = run(**named, **self.options) if named else run(*inputs, **self.options)
        return tuple(tensors(self.pick(made) if self.pick else made))


def network(name):
    def mark(make):
        NETWORKS[name] = make
        return make

    return mark


def calls(*inputs):
    """Inputs for a batch of 2 and of 1, of functions of the batch."""
    return [tuple(make(count) for make in inputs) for count in (2, 1)]


def floats(*sizes):
    return lambda count: torch.randn(count, *sizes)


def integers(bound, *sizes, low=0):
    return lambda count: torch.randint(low, bound, (count, *sizes))


def ones(*sizes, dtype=torch.int64):
    return lambda count: torch.ones(count, *sizes, dtype=dtype)


def fixed(*sizes):
    """An input without a batch."""
    return lambda count: torch.randn(*sizes)


def timm_network(name):
    """Of images as small as it takes."""
    def make():
        import timm
        for size in (96, 128, 160, None):
            for options in ({"img_size": size}, {}):
                try:
                    module = timm.create_model(name, **options if size else {}).eval()
                    side = size or timm.data.resolve_data_config({}, model=module)["input_size"][-1]
                    made = calls(floats(3, side, side))
                    with torch.no_grad():
                        module(*made[0])
                    return module, made
                except (AssertionError, RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError) as error:
                    last = error  # a size that it does not take
        raise last

    return make


NETWORKS.update((f"timm/{one}", timm_network(one)) for one in TIMM)


def table(library, rows, **options):
    """Networks of classes: name: (class, its configuration, inputs by name, how Called calls it)."""
    def make(kind, config, inputs, given):
        module = __import__(library)
        if library == "transformers":
            settings = getattr(module, given.get("settings", kind.partition("For")[0].removesuffix("Model")) + "Config")
            made = getattr(module, kind)(settings(**copy.deepcopy(config)))  # it may change those within
            for part in given.get("part", "").split(".") if given.get("part") else ():
                made = getattr(made, part)
        else:
            made = getattr(module, kind)(**config)
        how = {key: one for key, one in given.items() if key not in ("settings", "part")}
        return Called(made, tuple(inputs), **options, **how), calls(*inputs.values())

    for name, (kind, config, inputs, *given) in rows.items():
        given = given[0] if given else {}
        NETWORKS[f"{library}/{name}"] = lambda row=(kind, config, inputs, given): make(*row)


_STEP, _TEXT = integers(999), floats(7, 32)
_UNET = {"sample_size": 16, "block_out_channels": (32, 64), "norm_num_groups": 8}
_CROSS = {"cross_attention_dim": 32, "attention_head_dim": 8}
_KL = {"block_out_channels": (32, 64), "norm_num_groups": 8, "layers_per_block": 1,
       "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
_DC = ("ResBlock", "EfficientViTBlock")
_OOBLECK = {"encoder_hidden_size": 12, "decoder_channels": 12, "decoder_input_channels": 6,
            "downsampling_ratios": [2, 4], "channel_multiples": [1, 2]}
_STEPPED = {"sample": floats(4, 16, 16), "timestep": _STEP, "encoder_hidden_states": _TEXT}

table("diffusers", {
    "unet2d": ("UNet2DModel", {**_UNET, "layers_per_block": 1, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
                               "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
               {"sample": floats(3, 16, 16), "timestep": _STEP}),
    "unet2d_condition": ("UNet2DConditionModel", {
        **_UNET, **_CROSS, "layers_per_block": 2, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}, _STEPPED),
    "unet1d": ("UNet1DModel", {
        **_UNET, "sample_size": 64, "in_channels": 2, "out_channels": 2, "extra_in_channels": 16,
        "down_block_types": ("DownBlock1DNoSkip", "DownBlock1D"), "up_block_types": ("UpBlock1D", "UpBlock1DNoSkip")},
        {"sample": floats(2, 64), "timestep": _STEP}),
    "unet3d": ("UNet3DConditionModel", {
        **_UNET, **_CROSS, "layers_per_block": 1, "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
        "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D")},
        {**_STEPPED, "sample": floats(4, 3, 16, 16)}),
    "unet_spatiotemporal": ("UNetSpatioTemporalConditionModel", {
        "sample_size": 16, "block_out_channels": (32, 64), "cross_attention_dim": 32, "num_attention_heads": (2, 4),
        "addition_time_embed_dim": 32, "projection_class_embeddings_input_dim": 96, "layers_per_block": 1,
        "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"), "num_frames": 2},
        {"sample": floats(2, 8, 16, 16), "timestep": _STEP, "encoder_hidden_states": floats(1, 32),
         "added_time_ids": floats(3)}),
    "controlnet": ("ControlNetModel", {
        "block_out_channels": (32, 64), "norm_num_groups": 8, **_CROSS, "layers_per_block": 1,
        "conditioning_embedding_out_channels": (8, 16), "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")},
        {**_STEPPED, "controlnet_cond": floats(3, 32, 32)}),
    "vae_decode": ("AutoencoderKL", _KL, {"z": floats(4, 16, 16)}, {"method": "decode"}),
    "vae_temporal_decode": ("AutoencoderKLTemporalDecoder", {
        "block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2, "layers_per_block": 1},
        {"z": floats(4, 16, 16)}, {"method": "decode", "num_frames": 1}),
    "vq": ("VQModel", {**_KL, "num_vq_embeddings": 32, "vq_embed_dim": 4, "latent_channels": 4},
           {"sample": floats(3, 32, 32)}, {"pick": lambda made: made[0]}),
    "vae_tiny": ("AutoencoderTiny", {"encoder_block_out_channels": (16,) * 4, "decoder_block_out_channels": (16,) * 4},
                 {"sample": floats(3, 64, 64)}),
    "vae_dc": ("AutoencoderDC", {
        "in_channels": 3, "latent_channels": 4, "attention_head_dim": 8, "encoder_block_types": _DC,
        "decoder_block_types": _DC, "encoder_block_out_channels": (16, 32), "decoder_block_out_channels": (16, 32),
        "encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1), "encoder_qkv_multiscales": ((), (5,)),
        "decoder_qkv_multiscales": ((), (5,))}, {"sample": floats(3, 32, 32)}),
    "vae_wan_decode": ("AutoencoderKLWan", {
        "base_dim": 8, "z_dim": 4, "dim_mult": [1] * 4, "num_res_blocks": 1,
        "temperal_downsample": [False, True, True]}, {"z": floats(4, 1, 8, 8)}, {"method": "decode"}),
    "vae_cogvideox_decode": ("AutoencoderKLCogVideoX", {
        "down_block_types": ("CogVideoXDownBlock3D",) * 2, "up_block_types": ("CogVideoXUpBlock3D",) * 2,
        "block_out_channels": (16, 32), "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 4,
        "temporal_compression_ratio": 2}, {"z": floats(4, 2, 8, 8)}, {"method": "decode"}),
    "dit": ("DiTTransformer2DModel", {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 8, "num_layers": 2,
        "sample_size": 8, "patch_size": 2, "num_embeds_ada_norm": 10, "norm_num_groups": 4},
        {"hidden_states": floats(4, 8, 8), "timestep": _STEP, "class_labels": integers(9)}),
    "pixart": ("PixArtTransformer2DModel", {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 8, "num_layers": 2,
        "sample_size": 8, "cross_attention_dim": 32, "caption_channels": 32, "use_additional_conditions": False},
        {"hidden_states": floats(4, 8, 8), "encoder_hidden_states": _TEXT, "timestep": _STEP},
        {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}),
    "sd3": ("SD3Transformer2DModel", {
        "sample_size": 16, "patch_size": 2, "in_channels": 4, "out_channels": 4, "num_layers": 2,
        "attention_head_dim": 8, "num_attention_heads": 4, "joint_attention_dim": 32, "caption_projection_dim": 32,
        "pooled_projection_dim": 64, "qk_norm": "rms_norm", "dual_attention_layers": (0,)},
        {"hidden_states": floats(4, 16, 16), "encoder_hidden_states": _TEXT, "pooled_projections": floats(64),
         "timestep": floats()}),
    "flux": ("FluxTransformer2DModel", {
        "patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
        "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 32,
        "axes_dims_rope": [4, 4, 8], "guidance_embeds": True},
        {"hidden_states": floats(16, 4), "encoder_hidden_states": _TEXT, "pooled_projections": floats(32),
         "timestep": floats(), "guidance": floats(), "img_ids": fixed(16, 3), "txt_ids": fixed(7, 3)}),
    "qwen_image": ("QwenImageTransformer2DModel", {
        "patch_size": 2, "in_channels": 16, "out_channels": 4, "num_layers": 2, "attention_head_dim": 16,
        "num_attention_heads": 3, "joint_attention_dim": 32, "axes_dims_rope": (8, 4, 4), "guidance_embeds": False},
        {"hidden_states": floats(16, 16), "encoder_hidden_states": _TEXT, "encoder_hidden_states_mask": ones(7),
         "timestep": floats()}, {"img_shapes": [[(1, 4, 4)]] * 2, "txt_seq_lens": [7, 7]}),
    "auraflow": ("AuraFlowTransformer2DModel", {
        "sample_size": 16, "patch_size": 2, "in_channels": 4, "out_channels": 4, "num_mmdit_layers": 1,
        "num_single_dit_layers": 1, "attention_head_dim": 8, "num_attention_heads": 4, "joint_attention_dim": 32,
        "caption_projection_dim": 32, "pos_embed_max_size": 64},
        {"hidden_states": floats(4, 16, 16), "encoder_hidden_states": _TEXT, "timestep": floats()}),
    "sana": ("SanaTransformer2DModel", {
        "patch_size": 1, "in_channels": 4, "out_channels": 4, "num_layers": 1, "attention_head_dim": 8,
        "num_attention_heads": 2, "num_cross_attention_heads": 2, "cross_attention_head_dim": 8,
        "cross_attention_dim": 16, "caption_channels": 32, "sample_size": 16},
        {"hidden_states": floats(4, 16, 16), "encoder_hidden_states": _TEXT, "timestep": _STEP}),
    "lumina2": ("Lumina2Transformer2DModel", {
        "sample_size": 16, "patch_size": 2, "in_channels": 4, "hidden_size": 24, "num_layers": 1,
        "num_refiner_layers": 1, "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 2,
        "axes_dim_rope": (4, 2, 2), "axes_lens": (128,) * 3, "cap_feat_dim": 32},
        {"hidden_states": floats(4, 16, 16), "timestep": floats(), "encoder_hidden_states": _TEXT,
         "encoder_attention_mask": ones(7, dtype=torch.bool)}),
    "cogvideox": ("CogVideoXTransformer3DModel", {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "time_embed_dim": 2,
        "text_embed_dim": 32, "num_layers": 2, "sample_width": 8, "sample_height": 8, "sample_frames": 8,
        "patch_size": 2, "temporal_compression_ratio": 4, "max_text_seq_length": 7},
        {"hidden_states": floats(2, 4, 8, 8), "encoder_hidden_states": _TEXT, "timestep": _STEP}),
    "ltx": ("LTXVideoTransformer3DModel", {
        "in_channels": 8, "out_channels": 8, "num_attention_heads": 2, "attention_head_dim": 8,
        "cross_attention_dim": 16, "num_layers": 1, "caption_channels": 32},
        {"hidden_states": floats(32, 8), "encoder_hidden_states": _TEXT, "timestep": _STEP,
         "encoder_attention_mask": ones(7)}, {"num_frames": 2, "height": 4, "width": 4}),
    "wan": ("WanTransformer3DModel", {
        "patch_size": (1, 2, 2), "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4,
        "out_channels": 4, "text_dim": 32, "freq_dim": 64, "ffn_dim": 32, "num_layers": 2, "cross_attn_norm": True,
        "rope_max_seq_len": 32},
        {"hidden_states": floats(4, 2, 16, 16), "timestep": _STEP, "encoder_hidden_states": _TEXT}),
    "oobleck_decode": ("AutoencoderOobleck", _OOBLECK, {"z": floats(6, 32)}, {"method": "decode"}),
}, return_dict=False)

_ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SPEECH = {**_ENCODER, "conv_dim": (16,) * 3, "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "vocab_size": 30,
           "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
_ENCODEC = {"num_filters": 8, "hidden_size": 32, "codebook_dim": 32, "codebook_size": 64, "upsampling_ratios": [4, 2]}
_DAC = {"encoder_hidden_size": 16, "decoder_hidden_size": 64, "hidden_size": 64, "downsampling_ratios": [2, 4],
        "upsampling_ratios": [4, 2], "n_codebooks": 3, "codebook_size": 32, "codebook_dim": 4}
_WHISPER = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 20,
            "max_source_positions": 50, "max_target_positions": 40, "vocab_size": 60, "pad_token_id": 0,
            "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_WORDS = integers(30, 9, low=3)
_WAVE = {"input_values": floats(800)}

table("transformers", {
    "encodec_encode": ("EncodecModel", _ENCODEC, {"input_values": floats(1, 480)},
                       {"method": "encode", "bandwidth": 1.5, "pick": lambda made: made.audio_codes}),
    "encodec_encoder": ("EncodecModel", _ENCODEC, {"hidden_states": floats(1, 480)}, {"part": "encoder"}),
    "encodec_decoder": ("EncodecModel", _ENCODEC, {"hidden_states": floats(32, 60)}, {"part": "decoder"}),
    "dac": ("DacModel", _DAC, {"input_values": floats(1, 512)}),
    "dac_decode": ("DacModel", _DAC, {"audio_codes": integers(32, 3, 64)}, {"method": "decode"}),
    "mimi_encode": ("MimiModel", {
        **_ENCODER, "num_filters": 8, "codebook_dim": 16, "vector_quantization_hidden_dimension": 16,
        "codebook_size": 32, "upsampling_ratios": [4, 2], "num_key_value_heads": 4, "head_dim": 8,
        "num_quantizers": 4, "sampling_rate": 200, "frame_rate": 12.5, "upsample_groups": 32},
        {"input_values": floats(1, 480)}, {"method": "encode", "pick": lambda made: made.audio_codes}),
    "speecht5_hifigan": ("SpeechT5HifiGan", {
        "model_in_dim": 20, "upsample_initial_channel": 64, "upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8],
        "resblock_kernel_sizes": [3, 7], "resblock_dilation_sizes": [[1, 3, 5]] * 2},
        {"spectrogram": floats(30, 20)}),
    "vits_vocoder": ("VitsModel", {
        "vocab_size": 38, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32,
        "flow_size": 16, "spectrogram_bins": 9, "upsample_initial_channel": 16, "upsample_rates": [4, 4],
        "upsample_kernel_sizes": [8, 8], "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]]},
        {"spectrogram": floats(16, 20)}, {"part": "decoder"}),
    "wav2vec2": ("Wav2Vec2ForCTC", _SPEECH, _WAVE),
    "wav2vec2_masked": ("Wav2Vec2Model", {**_SPEECH, "feat_extract_norm": "layer", "do_stable_layer_norm": True},
                        {**_WAVE, "attention_mask": lambda n: (torch.arange(800) < 600).long().repeat(n, 1)}),
    "hubert": ("HubertModel", _SPEECH, _WAVE), "wavlm": ("WavLMModel", _SPEECH, _WAVE),
    "data2vec_audio": ("Data2VecAudioModel", _SPEECH, _WAVE),
    "sew": ("SEWModel", {**_SPEECH, "squeeze_factor": 2}, _WAVE),
    "conformer_relative": ("Wav2Vec2ConformerModel", {**_SPEECH, "position_embeddings_type": "relative"}, _WAVE),
    "conformer_rotary": ("Wav2Vec2ConformerModel", {**_SPEECH, "position_embeddings_type": "rotary"}, _WAVE),
    "wav2vec2_bert": ("Wav2Vec2BertModel", {**_ENCODER, "feature_projection_input_dim": 20},
                      {"input_features": floats(30, 20)}),
    "ast": ("ASTModel", {**_ENCODER, "max_length": 64, "num_mel_bins": 32}, {"input_values": floats(64, 32)}),
    "clap": ("ClapAudioModel", {
        "spec_size": 64, "num_mel_bins": 16, "patch_embeds_hidden_size": 32, "hidden_size": 64, "depths": [1, 1],
        "num_attention_heads": [2, 4], "window_size": 4, "num_hidden_layers": 2},
        {"input_features": floats(1, 64, 16)}, {"settings": "ClapAudio"}),
    "whisper_encoder": ("WhisperModel", _WHISPER, {"input_features": floats(20, 100)}, {"part": "encoder"}),
    "whisper_decoder": ("WhisperModel", _WHISPER, {"input_ids": _WORDS, "encoder_hidden_states": floats(50, 32)},
                        {"part": "decoder", "use_cache": False}),
    "whisper": ("WhisperForConditionalGeneration", _WHISPER,
                {"input_features": floats(20, 100), "decoder_input_ids": _WORDS}, {"use_cache": False}),
    "moonshine": ("MoonshineModel", {
        "hidden_size": 32, "intermediate_size": 64, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2,
        "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4, "vocab_size": 60},
        {"input_values": floats(4000), "decoder_input_ids": _WORDS}, {"use_cache": False}),
    "speecht5": ("SpeechT5ForSpeechToText", {
        **_SPEECH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
        {**_WAVE, "decoder_input_ids": _WORDS}, {"use_cache": False}),
    "dpt": ("DPTForDepthEstimation", {
        **_ENCODER, "image_size": 64, "patch_size": 16, "backbone_out_indices": [0, 1, 2, 3], "num_hidden_layers": 4,
        "neck_hidden_sizes": [16, 16, 32, 32], "fusion_hidden_size": 16, "is_hybrid": False},
        {"pixel_values": floats(3, 64, 64)}, {"settings": "DPT"}),
})


@network("diffusers/vae_encode")
def vae_encode():
    from diffusers import AutoencoderKL
    return Called(AutoencoderKL(**_KL), None, "encode", lambda made: made.latent_dist.mean), calls(floats(3, 32, 32))


@network("diffusers/oobleck_encode")
def oobleck_encode():
    from diffusers import AutoencoderOobleck
    return Called(AutoencoderOobleck(**_OOBLECK), None, "encode", lambda made: made.latent_dist.mode()), \
        calls(floats(2, 256))


class Heads(nn.Module):
    """A detector of torchvision up to what its heads say, without the choice of boxes."""

    def __init__(self, detector):
        super().__init__()
        self.backbone = detector.backbone
        self.head = detector.rpn.head if hasattr(detector, "rpn") else detector.head

    def forward(self, image):
        return tuple(tensors(self.head(list(self.backbone(image).values()))))


class Regions(nn.Module):
    """The head of a two-stage detector: the features of boxes."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8 * 49, 10)

    def forward(self, image, boxes):
        from torchvision.ops import roi_align
        regions = torch.cat([torch.zeros(boxes.shape[0], 1), boxes], 1)
        return (self.last(roi_align(self.first(image), regions, 7, 0.5, 2, True).flatten(1)),)


class Deformed(nn.Module):
    def __init__(self):
        super().__init__()
        from torchvision.ops import DeformConv2d
        self.offset, self.mask = nn.Conv2d(3, 18, 3, padding=1), nn.Conv2d(3, 9, 3, padding=1)
        self.last = DeformConv2d(3, 8, 3, padding=1)

    def forward(self, image):
        return (self.last(image, self.offset(image), self.mask(image).sigmoid()),)


@network("torchvision/roi_align")
def roi_align():
    corner = torch.rand(5, 2) * 20
    boxes = torch.cat([corner, corner + 5 + torch.rand(5, 2) * 20], 1)
    return Regions(), [(torch.randn(1, 3, 64, 64), boxes)] * 2


@network("torchvision/deform_conv")
def deform_conv():
    return Deformed(), calls(floats(3, 32, 32))


def vision_network(group, name, *sizes, **options):
    def make():
        import torchvision
        models = getattr(torchvision.models, group) if group else torchvision.models
        module = getattr(models, name)(weights=None, **options).eval()
        inputs = [floats(3, *sizes)] * (2 if group == "optical_flow" else 1)
        return Heads(module) if group == "detection" else Called(module), calls(*inputs)

    NETWORKS[f"torchvision/{name}"] = make


for _name, _size in (("ssd300_vgg16", 300), ("ssdlite320_mobilenet_v3_large", 320), ("fcos_resnet50_fpn", 128),
                     ("retinanet_resnet50_fpn_v2", 128), ("fasterrcnn_mobilenet_v3_large_fpn", 128)):
    vision_network("detection", _name, _size, _size, weights_backbone=None, num_classes=11)
for _name in ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"):
    vision_network("segmentation", _name, 96, 96, weights_backbone=None, num_classes=7)
for _name, _sizes in (("r3d_18", (4, 64, 64)), ("s3d", (16, 224, 224)), ("swin3d_t", (4, 64, 64)),
                      ("mvit_v1_b", (16, 224, 224))):
    vision_network("video", _name, *_sizes)
vision_network("optical_flow", "raft_small", 128, 128)
for _name, _size in (("alexnet", 96), ("googlenet", 96), ("inception_v3", 128), ("maxvit_t", 224), ("mnasnet0_5", 96),
                     ("shufflenet_v2_x0_5", 96), ("squeezenet1_1", 96), ("swin_v2_t", 96)):
    _options = {"init_weights": False} if _name in ("googlenet", "inception_v3") else {}
    vision_network(None, _name, _size, _size, **_options)


@network("torchaudio/conformer")
def conformer():
    from torchaudio.models import Conformer
    return Called(Conformer(16, 4, 32, 2, 7)), calls(floats(20, 16), lambda n: torch.full((n,), 20))


@network("torchaudio/conv_tasnet")
def conv_tasnet():
    from torchaudio.models import ConvTasNet
    return Called(ConvTasNet(enc_num_feats=32, msk_num_feats=16, msk_num_hidden_feats=32, msk_num_layers=3,
                             msk_num_stacks=2)), calls(floats(1, 400))


@network("torchaudio/wavernn")
def wavernn():
    from torchaudio.models import WaveRNN
    return Called(WaveRNN(upsample_scales=[2, 2, 4], n_classes=32, hop_length=16, n_rnn=32, n_fc=32, n_hidden=16,
                          n_output=16, n_freq=20)), calls(floats(1, 96), floats(1, 20, 10))


@network("torchaudio/hdemucs")
def hdemucs():
    from torchaudio.models import HDemucs
    return Called(HDemucs(["a", "b"], channels=8, nfft=256, depth=4)), calls(floats(2, 4096))


def clip_tower(name, tower):
    def make():
        import open_clip
        small = {"force_image_size": 64} if name == "ViT-B-32" else {}
        module = open_clip.create_model(name, pretrained=None, pretrained_hf=False, **small).eval()
        if tower == "text":
            length = open_clip.get_model_config(name)["text_cfg"].get("context_length", 77)
            return Called(module, method="encode_text"), calls(integers(1000, length, low=1))
        side = module.visual.image_size
        side = side[0] if isinstance(side, (tuple, list)) else side
        return Called(module, method="encode_image"), calls(floats(3, side, side))

    NETWORKS[f"open_clip/{name}/{tower}"] = make


for _name in ("ViT-B-32", "RN50", "coca_ViT-B-32", "ViT-B-16-SigLIP", "MobileCLIP-S1", "ViTamin-S", "PE-Core-S-16-384"):
    clip_tower(_name, "image")
for _name in ("ViT-B-32", "coca_ViT-B-32", "ViT-B-16-SigLIP", "MobileCLIP-S1"):
    clip_tower(_name, "text")


def segmentation_network(name):
    def make():
        import segmentation_models_pytorch as smp
        encoder = "tu-vit_tiny_patch16_224" if name == "DPT" else "resnet18"
        size = 224 if name == "DPT" else 96
        return Called(getattr(smp, name)(encoder, encoder_weights=None)), calls(floats(3, size, size))

    NETWORKS[f"segmentation_models_pytorch/{name}"] = make


for _name in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3Plus", "PAN", "UPerNet",
              "Segformer", "DPT"):
    segmentation_network(_name)
